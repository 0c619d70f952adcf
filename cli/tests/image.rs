//! What the container image is built from.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use std::{fs, path::Path};

#[test]
fn every_member_of_the_workspace_belongs_to_what_the_image_is_built_from() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let ignored = read(".dockerignore");
    let taken: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for member in manifest["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap().trim_end_matches("/*");
        let manifest = format!("{member}/Cargo.toml");
        let belongs = taken.iter().any(|path| manifest == *path || manifest.starts_with(&format!("{path}/")));
        assert!(belongs, "cargo in the image will not find {manifest}: .dockerignore keeps it out");
    }
}

#[test]
fn a_link_with_the_name_of_a_service_is_that_service() {
    let folder = tempfile::tempdir().unwrap();
    for service in ["planner", "worker", "critic"] {
        let link = folder.path().join(format!("starling-{service}"));
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_starling"), &link).unwrap();
        // It reads the flags and settings of a service, and stops at a wrong one, naming itself.
        let said = Command::new(&link).args(["--set", "kafka.brokers="]).output().unwrap();
        let text = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(64), "{service}: {text}");
        assert!(text.contains("kafka.brokers"), "{service}: {text}");
        let help = Command::new(&link).arg("--help").output().unwrap();
        let text = String::from_utf8(help.stdout).unwrap();
        assert!(!text.contains("dry-run") && text.contains("--set"), "{service}: {text}");
    }
}
