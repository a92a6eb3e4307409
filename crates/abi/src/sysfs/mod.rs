//! What the kernel would show of the devices under `/sys` and `/dev` if they were its own.
//!
//! Programs look there: UCX for the node of a device, perftest for counters, others for the network
//! interface or the place in the machine. Here is only what they would find, made from the same
//! structures that the verbs' queries fill; the preloaded library of `ferroce run` (crate
//! `ferroce-sysfs`) puts it in their way, and asks with [`ferroce_sysfs_look`].

mod counters;
mod device;
mod place;
mod port;
mod tree;

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use ferroce_nic::Nic;

use self::tree::{Found, Node, Tree};

/// Folders of which nothing but ours is seen.
const CLASS: &str = "/sys/class/infiniband";
const VERBS: &str = "/sys/class/infiniband_verbs";
const MAD: &str = "/sys/class/infiniband_mad";
/// Where the devices themselves are that are on no bus, as others without hardware.
const DEVICES: &str = "/sys/devices/virtual/ferroce";
const NODES: &str = "/dev/infiniband";

/// `IB_USER_VERBS_ABI_VERSION` and `IB_USER_MAD_ABI_VERSION` of the kernel's headers.
pub(crate) const VERBS_ABI: u32 = 6;
const MAD_ABI: u32 = 5;
/// `IB_UVERBS_MAJOR` and `IB_UVERBS_BASE_MINOR` of the kernel.
pub(crate) const UVERBS_MAJOR: u32 = 231;
pub(crate) const UVERBS_MINOR: u32 = 192;
/// `MISC_MAJOR`, whose minors the kernel gives out as it goes.
const MISC_MAJOR: u32 = 10;
const RDMA_CM_MINOR: u32 = 124;

/// Answers of [`ferroce_sysfs_look`]: what is at the end of the path, with what the buffer holds
/// behind the path.
mod kind {
    use std::ffi::c_int;

    /// Nothing of ours. The buffer ends with the path, which is the kernel's.
    pub(super) const OUTSIDE: c_int = 0;
    /// For each entry its kind (a byte), its name, a zero.
    pub(super) const DIRECTORY: c_int = 1;
    /// The content.
    pub(super) const FILE: c_int = 2;
    /// The target.
    pub(super) const LINK: c_int = 3;
    /// Major and minor number: two integers of 32 bits.
    pub(super) const DEVICE: c_int = 4;
}

/// What a name of [`names`] stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A folder.
    Directory,
    /// A file with its content at this moment, or the errno with which reading fails.
    File(Result<String, c_int>),
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

/// All names that there are at this moment, by their absolute paths; each behind its folder, but
/// for folders that are the kernel's.
#[must_use]
pub fn names() -> Vec<(String, Name)> {
    crate::verbs::engine::first_use();
    let tree = tree();
    let name = |node: &Node| match node {
        Node::Directory => Name::Directory,
        Node::File(content) => Name::File(content()),
        Node::Link(to) => Name::Link(to.clone()),
        &Node::Device { major, minor } => Name::Device { major, minor },
    };
    let all = tree.all();
    all.map(|(path, node)| (path.to_owned(), name(node)))
        .collect()
}

/// All that there is to see now.
fn tree() -> Tree {
    let mut tree = Tree::default();
    for root in [CLASS, VERBS, MAD, DEVICES, NODES] {
        tree.root(root);
    }
    tree.text(format!("{VERBS}/abi_version"), format!("{VERBS_ABI}\n"));
    tree.text(format!("{MAD}/abi_version"), format!("{MAD_ABI}\n"));
    tree.add(
        format!("{NODES}/rdma_cm"),
        Node::Device {
            major: MISC_MAJOR,
            minor: RDMA_CM_MINOR,
        },
    );
    match Nic::devices_in_sight() {
        Ok(devices) => devices
            .iter()
            .for_each(|device| device::add(&mut tree, device)),
        Err(e) => tracing::warn!(target: "ferroce::abi", "/sys/class/infiniband: {}", e.reason),
    }
    tree
}

/// Follows an absolute path, and its last name too if that is a link and `follow` is not 0. Gives
/// the kind of what is there, or a negative errno. `buffer` gets a block of `malloc` with `length`
/// bytes: the path free of links, a zero, and what the kind says.
///
/// # Safety
/// `path` is a string; `buffer` and `length` can be written.
pub unsafe extern "C" fn ferroce_sysfs_look(
    path: *const c_char,
    follow: c_int,
    buffer: *mut *mut c_char,
    length: *mut usize,
) -> c_int {
    crate::verbs::engine::first_use();
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let Ok(path) = path.to_str() else {
        return -libc::ENOENT;
    };
    let (kind, bytes) = match answer(&tree(), path, follow != 0) {
        Ok(answer) => answer,
        Err(errno) => return -errno,
    };
    // SAFETY: plain allocation; never of nothing, since a path has at least one byte.
    let block = unsafe { libc::malloc(bytes.len()) }.cast::<u8>();
    if block.is_null() {
        return -libc::ENOMEM;
    }
    // SAFETY: the block is as long as the bytes; the other two are the caller's promise.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), block, bytes.len());
        *buffer = block.cast();
        *length = bytes.len();
    }
    kind
}

/// The answer to a question.
fn answer(tree: &Tree, path: &str, follow: bool) -> Result<(c_int, Vec<u8>), c_int> {
    let (at, node) = match tree.look(path, follow)? {
        Found::Here(at, node) => (at, node),
        Found::Outside(at) => return Ok((kind::OUTSIDE, [at.as_bytes(), b"\0"].concat())),
    };
    let mut bytes = [at.as_bytes(), b"\0"].concat();
    match node {
        Node::Directory => {
            for (name, node) in tree.entries(&at) {
                bytes.push(u8::try_from(kind_of(node)).expect("invariant: the kinds are small"));
                bytes.extend(name.as_bytes());
                bytes.push(0);
            }
        }
        Node::File(content) => bytes.extend(content()?.as_bytes()),
        Node::Link(to) => bytes.extend(to.as_bytes()),
        Node::Device { major, minor } => {
            bytes.extend(major.to_ne_bytes());
            bytes.extend(minor.to_ne_bytes());
        }
    }
    Ok((kind_of(node), bytes))
}

fn kind_of(node: &Node) -> c_int {
    match node {
        Node::Directory => kind::DIRECTORY,
        Node::File(_) => kind::FILE,
        Node::Link(_) => kind::LINK,
        Node::Device { .. } => kind::DEVICE,
    }
}

/// A file's content, for the library's own functions that read there; `None` if the path is not
/// ours.
pub(crate) fn read(path: &str) -> Option<Result<String, c_int>> {
    let tree = tree();
    match tree.look(path, true) {
        Ok(Found::Outside(_)) => None,
        Ok(Found::Here(_, Node::File(content))) => Some(content()),
        Ok(Found::Here(_, Node::Directory)) => Some(Err(libc::EISDIR)),
        Ok(Found::Here(..)) => Some(Err(libc::EINVAL)),
        Err(errno) => Some(Err(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loopback device's folder.
    const LO: &str = "/sys/class/infiniband/ferroce_lo";

    fn content(path: &str) -> String {
        read(path).expect("one of ours").expect("a file")
    }

    fn names(path: &str) -> Vec<String> {
        let (kind, bytes) = answer(&tree(), path, true).expect("a folder");
        assert_eq!(kind, kind::DIRECTORY, "{path}");
        let start = bytes.iter().position(|b| *b == 0).expect("a path") + 1;
        bytes[start..]
            .split(|b| *b == 0)
            .filter(|entry| !entry.is_empty())
            .map(|entry| String::from_utf8(entry[1..].to_vec()).expect("text"))
            .collect()
    }

    #[test]
    fn the_files_say_what_the_queries_say() {
        let devices = Nic::devices_in_sight().expect("devices");
        let lo = devices
            .iter()
            .find(|d| d.name() == "ferroce_lo")
            .expect("the loopback device");
        let attr = crate::verbs::port::device_attr(lo);
        assert_eq!(content(&format!("{LO}/node_type")), "1: CA\n");
        assert_eq!(
            content(&format!("{LO}/node_guid")).replace([':', '\n'], ""),
            format!("{:016x}", u64::from_be(attr.node_guid))
        );
        assert_eq!(content(&format!("{LO}/ports/1/state")), "4: ACTIVE\n");
        assert_eq!(content(&format!("{LO}/ports/1/link_layer")), "Ethernet\n");
        assert_eq!(content(&format!("{LO}/ports/1/pkeys/0")), "0xffff\n");
        assert_eq!(content(&format!("{LO}/device/net/lo/mtu")), "65536\n");
        assert_eq!(
            content(&format!("{LO}/ports/1/gids/0")),
            "0000:0000:0000:0000:0000:ffff:7f00:0001\n"
        );
        assert_eq!(
            content(&format!("{LO}/ports/1/gid_attrs/types/0")),
            "RoCE v2\n"
        );
        assert_eq!(content(&format!("{LO}/ports/1/gid_attrs/ndevs/0")), "lo\n");
        let empty = lo.gids().len();
        assert_eq!(
            read(&format!("{LO}/ports/1/gid_attrs/types/{empty}")),
            Some(Err(libc::EINVAL))
        );
    }

    #[test]
    fn a_device_has_its_node_and_both_classes_lead_to_it() {
        let index = Nic::devices_in_sight()
            .expect("devices")
            .iter()
            .find(|d| d.name() == "ferroce_lo")
            .expect("the loopback device")
            .index();
        let verbs = format!("{VERBS}/uverbs{index}");
        assert_eq!(content(&format!("{verbs}/ibdev")), "ferroce_lo\n");
        assert_eq!(
            content(&format!("{verbs}/dev")),
            format!("231:{}\n", 192 + index)
        );
        assert_eq!(names(&format!("{verbs}/device/infiniband")), ["ferroce_lo"]);
        assert_eq!(
            names(&format!("{LO}/device/infiniband_verbs")),
            [format!("uverbs{index}")]
        );
        let (kind, bytes) = answer(&tree(), &format!("{NODES}/uverbs{index}"), true).expect("node");
        assert_eq!(kind, kind::DEVICE);
        assert!(bytes.ends_with(&[231_u32.to_ne_bytes(), (192 + index).to_ne_bytes()].concat()));
    }

    #[test]
    fn elsewhere_is_not_ours() {
        assert_eq!(read("/etc/hostname"), None);
        assert_eq!(read("/sys/class/net/lo/mtu"), None);
        assert_eq!(read("/sys/class/infiniband/none"), Some(Err(libc::ENOENT)));
    }
}
