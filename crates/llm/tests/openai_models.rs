//! The list of an endpoint's models.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use starling_llm::{Model as _, ModelErrorKind, OfflineModel};
use support::{KEY, model, raw_server};

fn answer(status: &str, body: &str) -> Vec<Vec<u8>> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    vec![head.into_bytes(), body.as_bytes().to_vec()]
}

#[tokio::test]
async fn models_are_listed_where_the_endpoint_has_a_list() {
    let url = raw_server(answer("200 OK", r#"{"data":[{"id":"small"},{"id":"large"}]}"#)).await;
    let listed = model(&url).models().await.unwrap();
    assert_eq!(listed, Some(vec!["small".to_owned(), "large".to_owned()]));
    for (status, body) in [("404 Not Found", "nothing"), ("405 Method Not Allowed", ""), ("200 OK", "hello")]
    {
        let url = raw_server(answer(status, body)).await;
        assert_eq!(model(&url).models().await.unwrap(), None, "{status}");
    }
    assert_eq!(OfflineModel::new().models().await.unwrap(), None);
}

#[tokio::test]
async fn a_refused_key_is_told_without_the_key() {
    let body = format!(r#"{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}"#);
    let url = raw_server(answer("401 Unauthorized", &body)).await;
    let error = model(&url).models().await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unauthorized);
    assert!(!error.to_string().contains(KEY), "{error}");
}

#[tokio::test]
async fn nobody_there_is_unreachable() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = model(&format!("http://127.0.0.1:{port}/v1")).models().await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unreachable);
}
