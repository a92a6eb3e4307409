//! Names of files that mean the same in all processes.

/// A file, by device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inode {
    /// `st_dev`
    pub dev: u64,
    /// `st_ino`
    pub ino: u64,
}

/// Which XRC domain a file stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DomainKey {
    /// The interface of the device, the same in all processes of a network namespace.
    pub(crate) ifindex: u32,
    pub(crate) inode: Inode,
}
