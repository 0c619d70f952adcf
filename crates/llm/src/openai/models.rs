//! What models an endpoint says it has.

use super::{
    Endpoint,
    body::{MAX_ERROR_BYTES, network_fault, read_body, read_up_to},
    fault::{self, Fault},
};
use crate::{ModelError, ModelErrorKind};
use serde_json::Value;
use starling_protocol::CallReport;
use std::cmp::Reverse;

/// Longest list that is read.
const MAX_LIST_BYTES: usize = 4 << 20;

/// One look, no retries. `None` if the endpoint has no such list.
pub(super) async fn list(endpoint: &Endpoint) -> Result<Option<Vec<String>>, ModelError> {
    ask(endpoint).await.map_err(|fault| ModelError {
        kind: fault.kind,
        message: fault::hide(&fault.message, &endpoint.secrets),
        endpoint: endpoint.target.endpoint.clone(),
        report: CallReport::default(),
    })
}

async fn ask(endpoint: &Endpoint) -> Result<Option<Vec<String>>, Fault> {
    let mut url = endpoint.target.url.clone();
    let path = url.path().trim_end_matches("/chat/completions").to_owned();
    url.set_path(&format!("{path}/models"));
    let request = endpoint.client.get(url).timeout(endpoint.options.connect_timeout);
    let response = endpoint.signed(request).send().await.map_err(network_fault)?;
    let status = response.status();
    if status.is_success() {
        let body = read_body(response, MAX_LIST_BYTES).await.map_err(|spoiled| spoiled.fault)?;
        return Ok(names(&body));
    }
    if matches!(status.as_u16(), 404 | 405 | 501) {
        return Ok(None);
    }
    let body = read_up_to(response, MAX_ERROR_BYTES).await;
    let body = String::from_utf8_lossy(&body);
    let fault = fault::of_status(status.as_u16(), None, &body);
    // No model was asked for, so none can be unknown.
    Err(if fault.kind == ModelErrorKind::UnknownModel {
        Fault::new(ModelErrorKind::BadRequest, fault.message)
    } else {
        fault
    })
}

/// The ids in a list, newest first where it says when they were made; `None` if it is no list, as of a server that answers
/// everything with a page.
fn names(body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let models = match list.get("data") {
        // What Ollama says while it has none.
        Some(Value::Null) => return Some(Vec::new()),
        Some(data) => data.as_array()?,
        None => list.as_array()?,
    };
    let id = |model: &Value| Some(model.get("id").or_else(|| model.get("name"))?.as_str()?.to_owned());
    let created = |model: &Value| model.get("created").and_then(Value::as_i64).unwrap_or_default();
    let mut dated: Vec<(i64, String)> =
        models.iter().filter_map(|model| Some((created(model), id(model)?))).collect();
    // Those of the same time stay as the endpoint has them.
    dated.sort_by_key(|(created, _)| Reverse(*created));
    Some(dated.into_iter().map(|(_, name)| name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_models_as_servers_write_them() {
        for (body, expected) in [
            (r#"{"object":"list","data":[{"id":"a"},{"id":"b","object":"model"}]}"#, Some(vec!["a", "b"])),
            (r#"[{"id":"a"}]"#, Some(vec!["a"])),
            (r#"{"data":[{"name":"a"},{"other":1}]}"#, Some(vec!["a"])),
            (r#"{"data":[]}"#, Some(vec![])),
            (r#"{"object":"list","data":null}"#, Some(vec![])),
            (
                r#"{"data":[{"id":"a","created":5},{"id":"b","created":7},{"id":"c"},{"id":"d","created":7}]}"#,
                Some(vec!["b", "d", "a", "c"]),
            ),
            (r#"{"models":1}"#, None),
            ("<html>", None),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(names(body.as_bytes()), expected, "{body}");
        }
    }
}
