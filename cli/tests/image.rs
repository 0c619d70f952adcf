//! What the container image is built from.
#![allow(clippy::unwrap_used)]

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
