//! A tree of names that leads into and out of the real file system.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fmt;

/// Links that a path may go through, as in the kernel.
const MAX_LINKS: usize = 40;

/// Makes a file's content at the moment when somebody reads it; an errno if reading fails.
type Content = Box<dyn Fn() -> Result<String, c_int>>;

/// What a name stands for.
pub(super) enum Node {
    /// A folder.
    Directory,
    /// A file that can only be read.
    File(Content),
    /// A symbolic link to a relative path.
    Link(String),
    /// A character device.
    Device {
        /// Its driver's number.
        major: u32,
        /// Its number within the driver.
        minor: u32,
    },
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory => f.write_str("Directory"),
            Self::File(_) => f.write_str("File"),
            Self::Link(to) => write!(f, "Link({to})"),
            Self::Device { major, minor } => write!(f, "Device({major}:{minor})"),
        }
    }
}

/// Where a path leads.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// To a node of the tree, with its path free of links and dots.
    Here(String, &'a Node),
    /// To something that is not the tree's business, under this path.
    Outside(String),
}

/// The tree: absolute paths, free of links and dots, and what they stand for.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: BTreeMap<String, Node>,
    roots: Vec<String>,
}

impl Tree {
    /// Adds a folder that the tree alone fills: what it does not know there does not exist.
    pub(super) fn root(&mut self, path: &str) {
        self.roots.push(path.to_owned());
        self.add(path.to_owned(), Node::Directory);
    }

    /// Adds a name to a folder of the kernel's, which does not list it. `exists` tells what the
    /// kernel has: what it lacks of the way there is the tree's, too.
    pub(super) fn guest(&mut self, path: String, node: Node, exists: impl Fn(&str) -> bool) {
        let mut root = path.as_str();
        while let Some((above, _)) = root.rsplit_once('/') {
            if above.is_empty() || exists(above) {
                break;
            }
            root = above;
        }
        self.roots.push(root.to_owned());
        self.add(path, node);
    }

    /// Adds a file.
    pub(super) fn file(
        &mut self,
        path: String,
        content: impl Fn() -> Result<String, c_int> + 'static,
    ) {
        self.add(path, Node::File(Box::new(content)));
    }

    /// Adds a file that says the same for as long as the tree lives.
    pub(super) fn text(&mut self, path: String, text: impl Into<String>) {
        let text = text.into();
        self.file(path, move || Ok(text.clone()));
    }

    /// Adds a node, and the folders that lead to it.
    pub(super) fn add(&mut self, path: String, node: Node) {
        let mut parent = path.as_str();
        while let Some((above, _)) = parent.rsplit_once('/') {
            if above.is_empty() || self.nodes.contains_key(above) {
                break;
            }
            self.nodes.insert(above.to_owned(), Node::Directory);
            parent = above;
        }
        self.nodes.insert(path, node);
    }

    /// All names of the tree, and what they stand for; each behind its folder.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Node)> {
        let own = self.nodes.iter().filter(|(path, _)| self.owns(path));
        own.map(|(path, node)| (path.as_str(), node))
    }

    /// The names in a folder and what they stand for.
    pub(super) fn entries<'a>(
        &'a self,
        folder: &str,
    ) -> impl Iterator<Item = (&'a str, &'a Node)> + use<'a> {
        let prefix = format!("{folder}/");
        let from = prefix.clone();
        let inside = self.nodes.range(from..);
        inside
            .map_while(move |(path, node)| Some((path.strip_prefix(&prefix)?, node)))
            .filter(|(name, _)| !name.contains('/'))
    }

    /// Follows an absolute path; the last name too if it is a link and `follow` is set.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ELOOP as of path_resolution(7).
    pub(super) fn look(&self, path: &str, follow: bool) -> Result<Found<'_>, c_int> {
        let mut ahead: Vec<String> = reversed(path);
        let mut at = String::new();
        let mut links = 0;
        // A slash or a dot at the end means the folder behind a link.
        let folder = path.ends_with('/') || path.ends_with("/.");
        let follow = follow || folder;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                at.truncate(at.rfind('/').unwrap_or(0));
                continue;
            }
            let next = format!("{at}/{name}");
            match self.nodes.get(&next) {
                None if self.owns(&at) => return Err(libc::ENOENT),
                None => {
                    ahead.push(next);
                    ahead.reverse();
                    return Ok(Found::Outside(ahead.join("/")));
                }
                Some(Node::Link(to)) if follow || !ahead.is_empty() => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(libc::ELOOP);
                    }
                    ahead.extend(reversed(to));
                }
                Some(Node::File(_) | Node::Device { .. }) if !ahead.is_empty() || folder => {
                    return Err(libc::ENOTDIR);
                }
                Some(_) => at = next,
            }
        }
        match self.nodes.get(&at) {
            Some(node) if self.owns(&at) => Ok(Found::Here(at, node)),
            _ if at.is_empty() => Ok(Found::Outside("/".to_owned())),
            _ => Ok(Found::Outside(at)),
        }
    }

    /// Whether a path is one of the roots or below.
    fn owns(&self, path: &str) -> bool {
        self.roots.iter().any(|root| {
            path.strip_prefix(root.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// The names of a path, last first.
fn reversed(path: &str) -> Vec<String> {
    path.split('/')
        .rev()
        .filter(|name| !name.is_empty() && *name != ".")
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        tree.root("/sys/class/a");
        tree.root("/sys/devices/virtual/d");
        tree.add(
            "/sys/class/a/x".into(),
            Node::Link("../../devices/virtual/d/x".into()),
        );
        tree.add("/sys/class/a/loop".into(), Node::Link("loop".into()));
        tree.text("/sys/devices/virtual/d/x/state".into(), "1\n");
        tree.add(
            "/sys/devices/virtual/d/x/out".into(),
            Node::Link("../../../../class/net/lo".into()),
        );
        tree
    }

    fn show(path: &str, follow: bool) -> String {
        match tree().look(path, follow) {
            Ok(Found::Here(at, node)) => format!("{at} {node:?}"),
            Ok(Found::Outside(at)) => format!("outside {at}"),
            Err(errno) => format!("errno {errno}"),
        }
    }

    #[test]
    fn paths_are_followed_as_the_kernel_does() {
        for (path, follow, due) in [
            ("/sys/class/a", true, "/sys/class/a Directory"),
            ("//sys/./class/a/", false, "/sys/class/a Directory"),
            (
                "/sys/class/a/x",
                false,
                "/sys/class/a/x Link(../../devices/virtual/d/x)",
            ),
            ("/sys/class/a/x", true, "/sys/devices/virtual/d/x Directory"),
            (
                "/sys/class/a/x/",
                false,
                "/sys/devices/virtual/d/x Directory",
            ),
            (
                "/sys/class/a/x/.",
                false,
                "/sys/devices/virtual/d/x Directory",
            ),
            (
                "/sys/class/a/x/state",
                false,
                "/sys/devices/virtual/d/x/state File",
            ),
            // Behind a link, the parent is the parent of its target.
            (
                "/sys/class/a/x/../x/state",
                true,
                "/sys/devices/virtual/d/x/state File",
            ),
            (
                "/sys/class/a/../a/x/..",
                true,
                "/sys/devices/virtual/d Directory",
            ),
        ] {
            assert_eq!(show(path, follow), due, "{path}");
        }
    }

    #[test]
    fn what_is_not_the_trees_is_left_to_the_kernel() {
        for (path, due) in [
            ("/etc/passwd", "outside /etc/passwd"),
            ("/", "outside /"),
            ("/sys/class", "outside /sys/class"),
            (
                "/sys/class/a/../net/lo/mtu",
                "outside /sys/class/net/lo/mtu",
            ),
            ("/sys/class/a/x/out/mtu", "outside /sys/class/net/lo/mtu"),
            ("/sys/class/ab/x", "outside /sys/class/ab/x"),
        ] {
            assert_eq!(show(path, true), due, "{path}");
        }
    }

    #[test]
    fn wrong_paths_have_their_errors() {
        for (path, errno) in [
            ("/sys/class/a/none", libc::ENOENT),
            ("/sys/class/a/none/../x", libc::ENOENT),
            ("/sys/class/a/x/state/more", libc::ENOTDIR),
            ("/sys/class/a/x/state/", libc::ENOTDIR),
            ("/sys/class/a/x/state/.", libc::ENOTDIR),
            ("/sys/class/a/x/state/..", libc::ENOTDIR),
            ("/sys/class/a/loop", libc::ELOOP),
        ] {
            assert_eq!(tree().look(path, true).err(), Some(errno), "{path}");
        }
    }

    #[test]
    fn a_guest_brings_the_folders_that_the_kernel_lacks() {
        let mut tree = tree();
        let kernel = |path: &str| path == "/sys" || path == "/sys/bus";
        tree.guest("/sys/bus/b/x".into(), Node::Link("../..".into()), kernel);
        for (path, due) in [
            ("/sys/bus", "outside"),
            ("/sys/bus/b", "here"),
            ("/sys/bus/b/y", "errno"),
            ("/sys/bus/b/x/z", "outside"),
        ] {
            let found = match tree.look(path, true) {
                Ok(Found::Here(..)) => "here",
                Ok(Found::Outside(_)) => "outside",
                Err(_) => "errno",
            };
            assert_eq!(found, due, "{path}");
        }
    }

    #[test]
    fn a_folder_lists_its_own_names_only() {
        let tree = tree();
        let names = |folder| -> Vec<&str> { tree.entries(folder).map(|(name, _)| name).collect() };
        assert_eq!(names("/sys/class/a"), ["loop", "x"]);
        assert_eq!(names("/sys/devices/virtual/d"), ["x"]);
        assert_eq!(names("/sys/devices/virtual/d/x"), ["out", "state"]);
    }
}
