//! The container image: the tree as `/ferroce`, and a program that copies it into a volume, for use
//! as an init container. It holds nothing else: no shell, no C library.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::{About, Part, at, build, tarball, write};
use crate::sh;

/// Entry point of the image.
const INSTALL: &str = "install";

/// Makes the image of the staged tree: an OCI layout as a tarball, which `skopeo copy
/// oci-archive:`, `podman load` and `docker load` read.
pub(super) fn build(part: &Part<'_>) -> Result<(), String> {
    let about = part.about;
    let top = part.staged.join("image");
    let root = top.join("root");
    fs::create_dir_all(&root).map_err(|e| at(&root, &e))?;
    let (from, place) = (part.tree.to_string_lossy(), root.join("ferroce"));
    sh::output("cp", &["-a", &from, &place.to_string_lossy()])?;
    program(part, &root.join(INSTALL))?;
    let layout = top.join("layout");
    let layer = layer(about, &top, &layout)?;
    let config = blob(&layout, &to_bytes(&config(part, &layer.content))?)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
        "layers": [layer.packed.descriptor("application/vnd.oci.image.layer.v1.tar+gzip")],
    });
    let manifest = blob(&layout, &to_bytes(&manifest)?)?;
    let mut entry = manifest.descriptor("application/vnd.oci.image.manifest.v1+json");
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": about.version});
    let index = json!({"schemaVersion": 2, "manifests": [entry]});
    write(&layout.join("index.json"), to_bytes(&index)?)?;
    write(
        &layout.join("oci-layout"),
        to_bytes(&json!({"imageLayoutVersion": "1.0.0"}))?,
    )?;
    let name = format!(
        "ferroce-{}-{}-oci.tar",
        about.version, part.system.processor
    );
    pack(about, &layout, &part.to.join(name))
}

/// Compiles the program that copies, without a library that the image would have to hold.
fn program(part: &Part<'_>, to: &Path) -> Result<(), String> {
    let mut compile = build::zig(part.workspace)?;
    compile.args(["cc", "-static", "-Os", "-s", "-Wall", "-Wextra", "-target"]);
    compile.arg(format!("{}-linux-musl", part.system.processor));
    compile.arg(part.workspace.root.join("packaging/image/install.c"));
    sh::step({
        compile.arg("-o").arg(to);
        compile
    })?;
    fs::set_permissions(to, Permissions::from_mode(0o755)).map_err(|e| at(to, &e))
}

/// A stored file, by its digest.
struct Blob {
    digest: String,
    size: u64,
}

impl Blob {
    fn descriptor(&self, kind: &str) -> Value {
        let digest = format!("sha256:{}", self.digest);
        json!({"mediaType": kind, "digest": digest, "size": self.size})
    }
}

struct Layer {
    packed: Blob,
    /// Digest of the tarball before it is packed.
    content: String,
}

fn layer(about: &About, top: &Path, layout: &Path) -> Result<Layer, String> {
    let (plain, packed) = (top.join("layer.tar"), top.join("layer.tar.gz"));
    pack(about, &top.join("root"), &plain)?;
    let content = sum(&plain)?;
    sh::output("gzip", &["-9nk", &plain.to_string_lossy()])?;
    let bytes = fs::read(&packed).map_err(|e| at(&packed, &e))?;
    let packed = blob(layout, &bytes)?;
    Ok(Layer { packed, content })
}

fn config(part: &Part<'_>, layer: &str) -> Value {
    json!({
        "architecture": part.system.debian(),
        "os": "linux",
        "config": {
            "Entrypoint": [format!("/{INSTALL}")],
            "Labels": {
                "org.opencontainers.image.source": part.about.repository,
                "org.opencontainers.image.version": part.about.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
    })
}

/// Stores bytes under their digest.
fn blob(layout: &Path, bytes: &[u8]) -> Result<Blob, String> {
    let new = layout.join("blobs/sha256/new");
    write(&new, bytes)?;
    let digest = sum(&new)?;
    let place = new.with_file_name(&digest);
    fs::rename(&new, &place).map_err(|e| at(&place, &e))?;
    let size = bytes.len() as u64;
    Ok(Blob { digest, size })
}

fn sum(file: &Path) -> Result<String, String> {
    let printed = sh::output("sha256sum", &[&file.to_string_lossy()])?;
    let digest = printed.split_whitespace().next();
    digest.map(str::to_owned).ok_or_else(|| printed.clone())
}

/// Packs what is in a folder, without the folder.
fn pack(about: &About, folder: &Path, to: &Path) -> Result<(), String> {
    sh::step(tarball(folder, ".", to, about))
}

fn to_bytes(value: &Value) -> Result<Vec<u8>, String> {
    serde_json::to_vec(value).map_err(|e| e.to_string())
}
