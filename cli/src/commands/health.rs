//! `starling health`: the health check of a container that has neither a shell nor curl.

use crate::{args::HealthArgs, exit::CliError};
use starling_runtime::process::CommonFlags;
use std::{process::ExitCode, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// How long the service may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer that is read, in bytes.
const MAX_ANSWER: u64 = 16 << 10;

pub(super) async fn health(flags: &CommonFlags, args: HealthArgs) -> Result<ExitCode, CliError> {
    let address = match args.address {
        Some(address) => address,
        None => {
            let settings = flags.settings().map_err(|error| CliError::Usage(error.to_string()))?;
            let listen = settings.http.listen.ok_or_else(|| {
                CliError::Usage("the setting http.listen is empty: the service serves no health".to_owned())
            })?;
            reachable(&listen)
        }
    };
    let path = if args.alive { "/healthz" } else { "/readyz" };
    let answer = timeout(PATIENCE, ask(&address, path))
        .await
        .map_err(|_| CliError::Failed(format!("{address} does not answer within {PATIENCE:?}")))?
        .map_err(|error| CliError::Failed(format!("{address} does not answer: {error}")))?;
    println!("{}", answer.text.trim_end());
    Ok(if answer.good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where a service that listens there is reached from this machine.
fn reachable(listen: &str) -> String {
    match listen.rsplit_once(':') {
        Some(("0.0.0.0" | "", port)) => format!("127.0.0.1:{port}"),
        Some(("[::]", port)) => format!("[::1]:{port}"),
        _ => listen.to_owned(),
    }
}

struct Answer {
    good: bool,
    text: String,
}

/// One request of HTTP/1.0, which is all that there is to it: the server closes the connection at the end.
async fn ask(address: &str, path: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let good = head.lines().next().and_then(|line| line.split(' ').nth(1)) == Some("200");
    Ok(Answer { good, text: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_listens_everywhere_is_asked_here() {
        for (listen, expected) in
            [("0.0.0.0:9464", "127.0.0.1:9464"), ("[::]:9464", "[::1]:9464"), ("10.1.2.3:80", "10.1.2.3:80")]
        {
            assert_eq!(reachable(listen), expected);
        }
    }
}
