//! `starling agents`, as a person calls it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{fs, path::Path, process::Command};

/// Exit code, standard output and standard error.
fn agents(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_starling"));
    command.env_clear().arg("agents").args(args);
    let ended = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

fn write(dir: &Path, name: &str, fields: &str) {
    let agent = format!("name = {name:?}\ndescription = \"About {name}.\"\nprompt = \"Do it.\"\n{fields}");
    fs::write(dir.join(format!("{name}.toml")), agent).unwrap();
}

#[test]
fn the_catalogue_is_listed_with_pools_and_models() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "scout", "purpose = \"work\"\npool = \"research\"\nmodel = \"judge\"\n");
    write(dir.path(), "clerk", "purpose = \"work\"\nmodel = \"form-filler\"\n");
    let agents_dir = format!("agents.dir={}", dir.path().display());
    let set = [
        "model.base_url=http://localhost:1",
        "model.name=big",
        "model.judge=small",
        &agents_dir,
        "topics.pools=research",
    ];
    let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
    let (code, table, error) = agents(&set);
    assert_eq!(code, Some(0), "{error}");
    let row = |name: &str| {
        let row = table.lines().find(|line| line.starts_with(name)).unwrap();
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("scout")[1..4], ["work", "research", "small"]);
    assert_eq!(row("clerk")[1..4], ["work", "default", "form-filler"]);
    assert_eq!(row("critic")[1..4], ["judge", "default", "small"]);
    assert_eq!(row("writer")[1..4], ["work", "default", "big"]);

    let (_, json, _) = agents(&[&set[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let scout = json["agents"].as_array().unwrap().iter().find(|agent| agent["name"] == "scout").unwrap();
    assert_eq!((&scout["pool"], &scout["model"]), (&"research".into(), &"small".into()));
}

#[test]
fn a_folder_is_checked_as_a_service_would_and_all_faults_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    write(dir.path(), "scout", "purpose = \"work\"\npool = \"research\"\n");
    let (code, _, error) = agents(&["--check", folder]);
    assert_eq!(code, Some(64));
    assert!(error.contains("topics.pools") && error.contains("scout"), "{error}");
    assert_eq!(agents(&["--check", folder, "--set", "topics.pools=research"]).0, Some(0));

    write(dir.path(), "clerk", "purpose = \"work\"\ntools = [\"browser\"]\ntimeout = 7\n");
    write(dir.path(), "poet", "purpose = \"dance\"\n");
    let (code, _, error) = agents(&["--check", folder]);
    assert_eq!(code, Some(64));
    for part in ["clerk.toml: tools: there is no such field", "clerk.toml: timeout: ", "poet.toml: purpose: "]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(agents(&["--check", "/nowhere/at/all"]).0, Some(64));
}

#[test]
fn workers_alone_have_pools_and_only_those_that_there_are() {
    use std::os::unix::process::CommandExt as _;
    let start = |service: &str, pools: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_starling"));
        // Under the name of a service it is that service.
        command.env_clear().arg0(service).args(["--pools", pools, "--set", "topics.pools=research"]);
        let ended = command.output().unwrap();
        (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
    };
    let (code, error) = start("starling-worker", "research,nowhere");
    assert_eq!(code, Some(64));
    assert!(error.contains("worker.pools: expected pools of topics.pools: default, research"), "{error}");
    let (code, error) = start("starling-critic", "research");
    assert_eq!(code, Some(64));
    assert!(error.contains("only workers have pools"), "{error}");
}
