//! Pages of a file of this process, opened as those of another one.

use std::os::fd::AsRawFd as _;

use ferroce_proto::ids::{Key, PdId};
use ferroce_proto::mr::{Access, Backing, Piece, Region, Rights};

use super::super::{FileId, PeerFile, PeerPages, SharedFile, Task, file, page_size};
use crate::sys::errno;

const KEY: Key = Key(1);
const PD: PdId = PdId(1);

fn this(file: &SharedFile) -> PeerFile {
    PeerFile {
        task: Task::this(),
        number: file.number(),
        id: file.id(),
    }
}

fn two_pages() -> (SharedFile, usize) {
    let len = 2 * usize::try_from(page_size()).unwrap();
    (SharedFile::create(c"test", len).unwrap(), len)
}

/// Rights to a buffer, at its addresses.
fn rights(buffer: &mut [u8], backing: Backing) -> (Rights, u64) {
    let addr = buffer.as_mut_ptr().expose_provenance() as u64;
    let region = Region::new(PD, addr, buffer.len() as u64, Access::LOCAL_WRITE);
    let mut rights = Rights::default();
    assert!(rights.insert(KEY, region.with_backing(backing)));
    (rights, addr)
}

fn piece(rights: &Rights, addr: u64, len: usize) -> Piece<'_> {
    let span = rights.open(KEY, PD, addr, len as u64, Access::LOCAL_WRITE);
    Piece::Registered(span.unwrap())
}

#[test]
fn copies_and_atomics_reach_the_owner() {
    let (file, len) = two_pages();
    let own = file.map(len).unwrap();
    let peer = PeerPages::open(&this(&file), 0, len, true).unwrap();
    let mut bytes: Vec<u8> = (0..=255).cycle().take(3000).collect();
    let (table, addr) = rights(&mut bytes, Backing::Mapped);
    let pieces = [
        piece(&table, addr, 1000),
        Piece::Inline(b"inline"),
        piece(&table, addr, 0),
        piece(&table, addr + 1000, 2000),
    ];
    peer.write(4000, &pieces, 3006).unwrap();
    let mut back = vec![0; 3006];
    let (table, addr) = rights(&mut back, Backing::Mapped);
    peer.read(4000, &[piece(&table, addr, 3006)], 3006).unwrap();
    drop(table);
    assert_eq!(back[..1000], bytes[..1000]);
    assert_eq!(&back[1000..1006], b"inline");
    assert_eq!(back[1006..], bytes[1000..]);
    assert_eq!(peer.fetch_add(0, 5).unwrap(), 0);
    assert_eq!(peer.compare_swap(0, 4, 9).unwrap(), 5);
    assert_eq!(peer.compare_swap(0, 5, 9).unwrap(), 5);
    let mut word = [0; 8];
    let (table, addr) = rights(&mut word, Backing::Mapped);
    let other = PeerPages::open(&this(&file), 0, len, false).unwrap();
    other.read(0, &[piece(&table, addr, 8)], 8).unwrap();
    drop(table);
    assert_eq!(u64::from_ne_bytes(word), 9);
    assert!(other.fetch_add(0, 1).is_err(), "not to be written");
    drop(own);
}

#[test]
fn nothing_outside_or_of_another_kind_is_touched() {
    let (file, len) = two_pages();
    let peer = PeerPages::open(&this(&file), 0, len, true).unwrap();
    let mut bytes = vec![1_u8; 64];
    let (table, addr) = rights(&mut bytes, Backing::Mapped);
    let all = [piece(&table, addr, 64)];
    let end = len as u64;
    for at in [end - 63, end, u64::MAX] {
        assert!(peer.write(at, &all, 64).is_err());
        assert!(peer.read(at, &all, 64).is_err());
    }
    peer.write(end - 64, &all, 64).unwrap();
    assert!(peer.write(0, &all, 63).is_err() && peer.read(0, &[Piece::Inline(b"x")], 1).is_err());
    for at in [end - 7, end, 4, u64::MAX - 7] {
        assert!(peer.fetch_add(at, 1).is_err());
        assert!(peer.compare_swap(at, 0, 1).is_err());
    }
    let mut other = vec![1_u8; 8];
    let (table, addr) = rights(&mut other, Backing::OnDemand);
    assert!(!PeerPages::takes(&[piece(&table, addr, 8)]));
    // What the program has unmapped is an error.
    let (table, addr) = rights(&mut [], Backing::Mapped);
    drop((table, addr));
    let mut rights = Rights::default();
    let region = Region::new(PD, 4096, 8, Access::LOCAL_WRITE);
    rights.insert(KEY, region);
    assert_eq!(
        peer.write(0, &[piece(&rights, 4096, 8)], 8)
            .map_err(|e| errno(&e)),
        Err(libc::EFAULT)
    );
}

/// Whatever cannot be trusted to stay, or is not what it is said to be, is not mapped.
#[test]
fn files_that_are_others_or_could_be_cut_are_refused() {
    let (file, len) = two_pages();
    let all = (0, len);
    let open = |file: &PeerFile, (offset, len)| {
        PeerPages::open(file, offset, len, true)
            .map(drop)
            .map_err(|e| errno(&e))
    };
    let right = this(&file);
    assert_eq!(open(&right, all), Ok(()));
    let inode = right.id.inode + 1;
    let another = PeerFile {
        id: FileId { inode, ..right.id },
        ..right
    };
    assert_eq!(open(&another, all), Err(libc::EINVAL));
    let closed = PeerFile {
        number: i32::MAX,
        ..right
    };
    assert_eq!(open(&closed, all), Err(libc::ENOENT));
    let task = Task {
        pid: -1,
        thread: -1,
    };
    let gone = PeerFile { task, ..right };
    assert_eq!(open(&gone, all), Err(libc::ENOENT));
    assert_eq!(open(&right, (page_size(), len)), Err(libc::EINVAL));
    assert_eq!(open(&right, (u64::MAX, len)), Err(libc::EINVAL));
    let unsealed = file::create(c"test", len, 0).unwrap();
    let number = unsealed.as_raw_fd();
    let loose = PeerFile {
        number,
        id: FileId::of(number).unwrap(),
        ..right
    };
    assert_eq!(open(&loose, all), Err(libc::EINVAL));
    assert!(SharedFile::of(number).is_err() && SharedFile::of(-1).is_err());
    file::add_seals(&unsealed, libc::F_SEAL_SHRINK).unwrap();
    assert_eq!(open(&loose, all), Ok(()));
    let sealed = SharedFile::of(number).unwrap();
    drop(unsealed);
    assert_eq!(open(&this(&sealed), all), Ok(()));
    // No file of memory at all.
    let program = std::fs::File::open("/proc/self/exe").unwrap();
    let number = program.as_raw_fd();
    let id = FileId::of(number).unwrap();
    assert!(
        open(
            &PeerFile {
                number,
                id,
                ..right
            },
            all
        )
        .is_err()
    );
}

#[test]
fn pages_that_are_given_back_are_zeros_and_no_signal() {
    let (file, len) = two_pages();
    let peer = PeerPages::open(&this(&file), 0, len, true).unwrap();
    assert_eq!(peer.fetch_add(8, 7).unwrap(), 0);
    file.discard();
    assert_eq!(peer.fetch_add(8, 1).unwrap(), 0);
}
