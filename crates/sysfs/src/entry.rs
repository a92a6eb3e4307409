//! What a name of ours stands for, and how `stat(2)` shows it.

use std::ffi::{CString, c_int};
use std::sync::OnceLock;

/// The file system that our names seem to be on: no block device has this number.
const FILE_SYSTEM: libc::dev_t = 0xfe;
/// What the kernel says of files whose content it makes when they are read.
const FILE_SIZE: i64 = 4096;

/// A name of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Absolute, free of links and dots.
    pub(crate) path: CString,
    /// Kind of the entry.
    pub(crate) kind: Kind,
}

/// Kinds of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A folder with its names and their `d_type`.
    Directory(Vec<(CString, u8)>),
    /// A file.
    File(Vec<u8>),
    /// A link's target.
    Link(Vec<u8>),
    /// A character device's two numbers.
    Device(u32, u32),
}

impl Kind {
    /// From what the drop-in library says (`ferroce_abi::sysfs`).
    pub(crate) fn parse(kind: c_int, bytes: &[u8]) -> Option<Self> {
        Some(match kind {
            1 => Self::Directory(names(bytes)?),
            2 => Self::File(bytes.to_vec()),
            3 => Self::Link(bytes.to_vec()),
            4 => {
                let (major, minor) = bytes.split_first_chunk::<4>()?;
                Self::Device(
                    u32::from_ne_bytes(*major),
                    u32::from_ne_bytes(minor.try_into().ok()?),
                )
            }
            _ => return None,
        })
    }

    /// Type and permissions.
    pub(crate) fn mode(&self) -> libc::mode_t {
        match self {
            Self::Directory(_) => libc::S_IFDIR | 0o755,
            Self::File(_) => libc::S_IFREG | 0o444,
            Self::Link(_) => libc::S_IFLNK | 0o777,
            Self::Device(..) => libc::S_IFCHR | 0o666,
        }
    }

    fn size(&self) -> i64 {
        match self {
            Self::File(_) => FILE_SIZE,
            Self::Link(to) => i64::try_from(to.len()).unwrap_or(i64::MAX),
            Self::Directory(_) | Self::Device(..) => 0,
        }
    }
}

/// A folder's names, each behind its kind and in front of a zero.
fn names(bytes: &[u8]) -> Option<Vec<(CString, u8)>> {
    let mut names = Vec::new();
    let mut rest = bytes;
    while let Some((kind, behind)) = rest.split_first() {
        let end = behind.iter().position(|byte| *byte == 0)?;
        let entry_type = match kind {
            1 => libc::DT_DIR,
            2 => libc::DT_REG,
            3 => libc::DT_LNK,
            _ => libc::DT_CHR,
        };
        names.push((CString::new(&behind[..end]).ok()?, entry_type));
        rest = &behind[end + 1..];
    }
    Some(names)
}

impl Entry {
    /// A number for its path, the same in every process (FNV-1a).
    pub(crate) fn inode(&self) -> u64 {
        self.path
            .to_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            })
    }

    /// What `stat(2)` says.
    pub(crate) fn stat(&self) -> libc::stat {
        // SAFETY: integers only.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        stat.st_dev = FILE_SYSTEM;
        stat.st_ino = self.inode();
        stat.st_mode = self.kind.mode();
        // Of a folder with one link nobody concludes how many folders are in it.
        stat.st_nlink = 1;
        stat.st_size = self.kind.size();
        stat.st_blksize = 4096;
        if let Kind::Device(major, minor) = self.kind {
            stat.st_rdev = libc::makedev(major, minor);
        }
        let now = since();
        (stat.st_atime, stat.st_mtime, stat.st_ctime) = (now, now, now);
        stat
    }

    /// What `statx(2)` says.
    pub(crate) fn statx(&self) -> libc::statx {
        let plain = self.stat();
        // SAFETY: integers only.
        let mut statx: libc::statx = unsafe { std::mem::zeroed() };
        statx.stx_mask = libc::STATX_BASIC_STATS;
        statx.stx_blksize = 4096;
        statx.stx_nlink = 1;
        statx.stx_mode = u16::try_from(plain.st_mode).expect("invariant: a mode has 16 bits");
        statx.stx_ino = plain.st_ino;
        statx.stx_size = u64::try_from(plain.st_size).unwrap_or(0);
        statx.stx_dev_minor = libc::minor(FILE_SYSTEM);
        if let Kind::Device(major, minor) = self.kind {
            (statx.stx_rdev_major, statx.stx_rdev_minor) = (major, minor);
        }
        for time in [
            &mut statx.stx_atime,
            &mut statx.stx_mtime,
            &mut statx.stx_ctime,
        ] {
            time.tv_sec = plain.st_mtime;
        }
        statx
    }
}

/// Since when there is anything to see: since somebody looked.
fn since() -> i64 {
    static SINCE: OnceLock<i64> = OnceLock::new();
    // SAFETY: a null pointer asks for the result only.
    *SINCE.get_or_init(|| unsafe { libc::time(std::ptr::null_mut()) })
}
