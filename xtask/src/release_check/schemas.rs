//! The descriptions in a release, held against the schemas of the programs that read them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::find;
use crate::sh;
use crate::workspace::Workspace;

/// Bring the schemas of Kubernetes, compose files, CI services and bills of materials.
const VALIDATORS: [&str; 3] = [
    "check-jsonschema==0.39.0",
    "cyclonedx-python-lib[json-validation]==11.12.0",
    "kubernetes-validate==1.37.0",
];
/// The style of the YAML files.
const STYLE: &str = "{extends: default, rules: {line-length: {max: 120}, document-start: disable}}";
/// Holds a bill of materials against its schema.
const BILL: &str = "import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read())
sys.exit(str(error) if error else 0)";

/// Checks the files of a release and those that they are made of.
pub(super) fn check(workspace: &Workspace, made: &[PathBuf]) -> Result<(), String> {
    let commands = validators(workspace)?;
    let packaging = |name: &str| workspace.root.join("packaging").join(name);
    let pod = packaging("image/kubernetes.yaml");
    let compose = packaging("image/compose.yaml");
    let (action, gitlab) = (packaging("ci/action.yml"), packaging("ci/gitlab.yml"));
    let all = [&pod, &compose, &action, &gitlab];
    run("yamllint".into(), &["--strict", "-d", STYLE], &all)?;
    run(commands.join("kubernetes-validate"), &["--strict"], &[&pod])?;
    for (schema, file) in [
        ("vendor.compose-spec", &compose),
        ("vendor.github-actions", &action),
        ("vendor.gitlab-ci", &gitlab),
    ] {
        let words = ["--builtin-schema", schema];
        run(commands.join("check-jsonschema"), &words, &[file])?;
    }
    let bill = find(made, ".cdx.json")?;
    run(commands.join("python"), &["-c", BILL], &[bill])
}

fn run(program: PathBuf, words: &[&str], files: &[&PathBuf]) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(words).args(files);
    sh::step(command)
}

/// A Python environment with the validators; the folder of its commands.
fn validators(workspace: &Workspace) -> Result<PathBuf, String> {
    let folder: &Path = &workspace.target.join("validators");
    let commands = folder.join("bin");
    let mut make = Command::new("/usr/bin/python3");
    make.args(["-m", "venv"]).arg(folder);
    sh::step(make)?;
    let mut install = Command::new(commands.join("pip"));
    install.args(["--quiet", "install"]).args(VALIDATORS);
    sh::step(install)?;
    Ok(commands)
}
