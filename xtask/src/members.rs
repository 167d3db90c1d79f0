//! The members of the workspace: what each takes over from it, and which features it has.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::step::{Outcome, cargo, line};

/// What every member takes over from the workspace, so that no crate has rules of its own.
const INHERITED: [&str; 4] = ["lints", "package.edition", "package.license", "package.rust-version"];

/// One package of the workspace.
pub(crate) struct Member {
    pub(crate) name: String,
    /// A crate that users depend on: a library under `crates/`.
    pub(crate) library: bool,
    pub(crate) features: Vec<String>,
    manifest: String,
}

/// Reads the members from `cargo metadata`.
pub(crate) fn read() -> Outcome<Vec<Member>> {
    let mut command = cargo(["metadata", "--no-deps", "--format-version", "1"]);
    let output = command.output().map_err(|error| format!("{} could not be run: {error}", line(&command)))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout)
        .ok()
        .as_ref()
        .and_then(members)
        .ok_or_else(|| format!("{} answered with something else than packages", line(&command)))
}

fn members(metadata: &Value) -> Option<Vec<Member>> {
    let root = Path::new(metadata.get("workspace_root")?.as_str()?);
    let packages = metadata.get("packages")?.as_array()?;
    packages.iter().map(|package| member(package, root)).collect()
}

fn member(package: &Value, root: &Path) -> Option<Member> {
    let manifest = package.get("manifest_path")?.as_str()?;
    let targets = package.get("targets")?.as_array()?;
    let library = targets
        .iter()
        .filter_map(|target| target.get("kind")?.as_array())
        .flatten()
        .any(|kind| kind == "lib" || kind == "proc-macro");
    Some(Member {
        name: package.get("name")?.as_str()?.to_owned(),
        library: library && Path::new(manifest).starts_with(root.join("crates")),
        features: package.get("features")?.as_object()?.keys().cloned().collect(),
        manifest: manifest.to_owned(),
    })
}

/// Fails for every member that has rules of its own.
pub(crate) fn check(members: &[Member]) -> Outcome {
    let mut faults = Vec::new();
    for Member { name, manifest, .. } in members {
        let text = fs::read_to_string(manifest).map_err(|error| format!("`{manifest}` cannot be read: {error}"))?;
        faults.extend(own_rules(&text).map(|key| format!("`{name}` does not inherit `{key}` from the workspace")));
    }
    if faults.is_empty() {
        println!("    {} members inherit {}", members.len(), INHERITED.join(", "));
        Ok(())
    } else {
        Err(faults.join("; "))
    }
}

/// Which of [`INHERITED`] this manifest does not take over from the workspace.
///
/// It reads the spellings in use, `key.workspace = true` and `key = { workspace = true }` under the header of their
/// table; whatever else TOML allows is refused, which errs on the side that is noticed.
fn own_rules(manifest: &str) -> impl Iterator<Item = &'static str> {
    let mut table = String::new();
    let mut inherited = Vec::new();
    for line in manifest.lines() {
        let line: String = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = format!("{header}.");
        } else if let Some(key) =
            line.strip_suffix(".workspace=true").or_else(|| line.strip_suffix("={workspace=true}"))
        {
            inherited.push(format!("{table}{key}"));
        } else if line == "workspace=true" {
            inherited.push(table.trim_end_matches('.').to_owned());
        }
    }
    INHERITED.into_iter().filter(move |key| !inherited.iter().any(|own| own == key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(manifest: &str) -> Vec<&'static str> {
        own_rules(manifest).collect()
    }

    #[test]
    fn every_spelling_in_use_is_read() {
        let manifest = "[package]\nname = \"a\"\nedition.workspace = true # as all\nlicense = { workspace = true }\n\
                        rust-version.workspace=true\n\n[lints]\nworkspace = true\n";
        assert_eq!(faults(manifest), Vec::<&str>::new());
    }

    #[test]
    fn what_stands_in_a_comment_or_in_another_table_is_not_inherited() {
        let manifest = "[package]\nedition = \"2024\"\n# license.workspace = true\n[package.metadata.a]\n\
                        rust-version.workspace = true\n[dependencies]\nlints.workspace = true\n";
        assert_eq!(faults(manifest), INHERITED);
    }

    #[test]
    fn lints_that_are_switched_off_are_not_inherited() {
        assert!(faults("[lints]\nworkspace = false\n").contains(&"lints"));
        assert!(faults("[lints.rust]\nworkspace = true\n").contains(&"lints"));
    }

    #[test]
    fn only_libraries_under_crates_have_a_feature_matrix() {
        let metadata = serde_json::json!({
            "workspace_root": "/w",
            "packages": [
                {"name": "a", "manifest_path": "/w/crates/a/Cargo.toml", "features": {"x": [], "default": ["x"]},
                 "targets": [{"kind": ["lib"]}, {"kind": ["test"]}]},
                {"name": "b", "manifest_path": "/w/crates/b/Cargo.toml", "features": {}, "targets": [{"kind": ["bin"]}]},
                {"name": "c", "manifest_path": "/w/examples/c/Cargo.toml", "features": {}, "targets": [{"kind": ["lib"]}]},
            ],
        });
        let members = members(&metadata).unwrap();
        let libraries: Vec<_> = members.iter().filter(|member| member.library).collect();
        assert_eq!(libraries.len(), 1);
        assert_eq!(libraries[0].name, "a");
        assert_eq!(libraries[0].features, ["default", "x"]);
    }
}
