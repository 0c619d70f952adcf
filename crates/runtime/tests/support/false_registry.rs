//! An HTTP server that says what a test wants a schema registry to say.
#![allow(dead_code, unreachable_pub)]

use axum::{
    Router,
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// A false registry. It knows ids only, unless it is told to answer everything in one way.
#[derive(Clone, Default)]
pub struct FalseRegistry {
    pub url: String,
    said: Arc<Mutex<Said>>,
}

#[derive(Default)]
struct Said {
    schemas: BTreeMap<String, String>,
    always: Option<(u16, String)>,
    asked: Vec<String>,
}

impl FalseRegistry {
    /// One that knows nothing.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let registry = Self { url, ..Self::default() };
        let service = Router::new().fallback(answer).with_state(registry.clone());
        tokio::spawn(async move { axum::serve(listener, service).await });
        registry
    }

    /// From now on it knows this id.
    pub fn knows(&self, id: i32, schema: &str) {
        self.said.lock().unwrap().schemas.insert(format!("/schemas/ids/{id}"), schema.to_owned());
    }

    /// From now on it answers this, whatever it is asked; `None` ends that.
    pub fn always(&self, answer: Option<(u16, &str)>) {
        self.said.lock().unwrap().always = answer.map(|(status, body)| (status, body.to_owned()));
    }

    /// The paths that it was asked for.
    pub fn asked(&self) -> Vec<String> {
        self.said.lock().unwrap().asked.clone()
    }
}

async fn answer(State(registry): State<FalseRegistry>, request: Request) -> Response {
    let mut said = registry.said.lock().unwrap();
    let path = request.uri().path().to_owned();
    said.asked.push(path.clone());
    if let Some((status, body)) = said.always.clone() {
        return (StatusCode::from_u16(status).unwrap(), body).into_response();
    }
    match said.schemas.get(&path) {
        Some(schema) => json!({ "schema": schema }).to_string().into_response(),
        None => {
            let complaint = json!({ "error_code": 40403, "message": "Schema not found" }).to_string();
            (StatusCode::NOT_FOUND, complaint).into_response()
        }
    }
}
