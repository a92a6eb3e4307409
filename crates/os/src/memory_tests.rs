use ferroce_proto::ids::{Key, PdId};
use ferroce_proto::mr::{Access, Region, Rights};

use super::*;

const KEY: Key = Key(1);
const PD: PdId = PdId(1);

/// Rights to a buffer, whose pointer is exposed as that of a program's is.
fn rights(buffer: &mut [u8]) -> Rights {
    let access =
        Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let addr = buffer.as_mut_ptr().expose_provenance() as u64;
    let region = Region::new(PD, addr, buffer.len() as u64, access).with_iova(0);
    let mut rights = Rights::default();
    assert!(rights.insert(KEY, region));
    rights
}

fn span(rights: &Rights, at: u64, len: u64) -> Span<'_> {
    rights
        .open(KEY, PD, at, len, Access::empty())
        .expect("inside the region")
}

#[test]
fn copies_of_every_length_and_alignment_are_exact() {
    let mut buffer = vec![0xaa_u8; 64];
    for start in 0..16 {
        for len in 0..32 {
            buffer.fill(0xaa);
            let rights = rights(&mut buffer);
            let from: Vec<u8> = (1..).take(len).collect();
            RawMemory.write(span(&rights, start as u64, len as u64), &from);
            let mut to = vec![0; len];
            RawMemory.read(span(&rights, start as u64, len as u64), &mut to);
            assert_eq!(to, from);
            let mut to = b"before".to_vec();
            RawMemory.append(span(&rights, start as u64, len as u64), &mut to);
            assert_eq!(to, [b"before", &from[..]].concat());
            assert_eq!(buffer[start..start + len], from);
            assert!(
                buffer[..start]
                    .iter()
                    .chain(&buffer[start + len..])
                    .all(|b| *b == 0xaa)
            );
        }
    }
}

#[test]
fn atomics_return_the_old_value() {
    let mut buffer = vec![0u8; 24];
    let base = buffer.as_ptr().align_offset(8) as u64;
    // Aligned in memory, and not.
    for at in [base, base + 3] {
        let rights = rights(&mut buffer);
        let word = || span(&rights, at, 8);
        RawMemory.write(word(), &5u64.to_ne_bytes());
        assert_eq!(RawMemory.fetch_add(word(), 2), 5);
        assert_eq!(RawMemory.compare_swap(word(), 6, 9), 7);
        assert_eq!(RawMemory.compare_swap(word(), 7, u64::MAX), 7);
        assert_eq!(RawMemory.fetch_add(word(), 2), u64::MAX);
        assert_eq!(RawMemory.fetch_add(word(), 0), 1);
    }
}

#[test]
fn atomics_of_several_threads_do_not_lose_each_other() {
    let mut buffer = vec![0u8; 32];
    let base = buffer.as_ptr().align_offset(8) as u64;
    let rights = rights(&mut buffer);
    let words = || (span(&rights, base, 8), span(&rights, base + 9, 8));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (aligned, unaligned) = words();
                for _ in 0..1000 {
                    RawMemory.fetch_add(aligned, 1);
                    RawMemory.fetch_add(unaligned, 1);
                }
            });
        }
    });
    let (aligned, unaligned) = words();
    assert_eq!(RawMemory.fetch_add(aligned, 0), 4000);
    assert_eq!(RawMemory.fetch_add(unaligned, 0), 4000);
}

/// Pages of which each has its own protection.
struct Pages {
    base: u64,
    len: u64,
}

impl Pages {
    fn new(protections: &[i32]) -> Self {
        let page = page_size();
        let len = page * protections.len() as u64;
        let size = usize::try_from(len).expect("small");
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping wherever the kernel likes.
        let base = unsafe { libc::mmap(ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let this = Self {
            base: base as u64,
            len,
        };
        for (i, protection) in protections.iter().enumerate() {
            let (at, size) = (address(this.page(i)), usize::try_from(page).expect("small"));
            // SAFETY: a page of the mapping made above, to which nothing refers. -1 stands for a hole.
            let changed = unsafe {
                if *protection < 0 {
                    libc::munmap(at, size)
                } else {
                    libc::mprotect(at, size, *protection)
                }
            };
            assert_eq!(changed, 0);
        }
        this
    }

    fn page(&self, i: usize) -> u64 {
        self.base + page_size() * i as u64
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let size = usize::try_from(self.len).expect("small");
        // SAFETY: the mapping is this object's own; a hole in it is no error.
        unsafe { libc::munmap(address(self.base), size) };
    }
}

fn probe(addr: u64, len: u64, writable: bool) -> Result<(), i32> {
    probe_range(addr, len, writable).map_err(|e| errno(&e))
}

#[test]
fn mapped_memory_can_be_registered() {
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let pages = Pages::new(&[rw, rw, rw]);
    assert_eq!(probe(pages.base, pages.len, true), Ok(()));
    assert_eq!(probe(pages.base + 1, 1, true), Ok(()));
    assert_eq!(probe(pages.base + 1, pages.len - 1, true), Ok(()));
    assert_eq!(probe(pages.base + 100, page_size() * 2, false), Ok(()));
    assert_eq!(probe(0, 0, true), Ok(()));
}

#[test]
fn holes_and_protected_pages_are_faults() {
    let (rw, ro) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ);
    let pages = Pages::new(&[rw, -1, rw, ro, libc::PROT_NONE, -1]);
    let page = page_size();
    for writable in [false, true] {
        assert_eq!(
            probe(pages.base, 3 * page, writable),
            Err(libc::EFAULT),
            "a hole in the middle"
        );
        assert_eq!(
            probe(pages.base, page + 1, writable),
            Err(libc::EFAULT),
            "a hole at the end"
        );
        assert_eq!(
            probe(pages.page(1), page, writable),
            Err(libc::EFAULT),
            "a hole at the start"
        );
        assert_eq!(
            probe(pages.page(4), 1, writable),
            Err(libc::EFAULT),
            "no access"
        );
        assert_eq!(
            probe(pages.page(3), page + 1, writable),
            Err(libc::EFAULT),
            "no access at the end"
        );
    }
    assert_eq!(probe(pages.page(2), 2 * page, false), Ok(()));
    assert_eq!(
        probe(pages.page(2), 2 * page, true),
        Err(libc::EFAULT),
        "read-only at the end"
    );
    assert_eq!(
        probe(pages.page(3), 1, true),
        Err(libc::EFAULT),
        "read-only"
    );
}

#[test]
fn ranges_that_cannot_be_are_faults() {
    for (addr, len) in [
        (0, 1),
        (u64::MAX, 1),
        (u64::MAX, 2),
        (1, u64::MAX),
        (1 << 62, 8),
    ] {
        assert_eq!(
            probe(addr, len, false),
            Err(libc::EFAULT),
            "{addr:#x} + {len:#x}"
        );
    }
}

#[test]
fn the_list_of_mappings_agrees() {
    let (rw, ro) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ);
    let pages = Pages::new(&[rw, ro, -1]);
    assert!(listed_as_accessible(pages.page(0), true));
    assert!(listed_as_accessible(pages.page(1), false));
    assert!(!listed_as_accessible(pages.page(1), true));
    assert!(!listed_as_accessible(pages.page(2), false));
}

#[test]
fn lines_of_the_list_are_understood() {
    let line = "7f00-8000 r--p 00000000 fe:00 123   /usr/lib/a b";
    assert_eq!(parse_mapping(line), Some((0x7f00..0x8000, "r--p")));
    for bad in ["", "x-y rw-p", "7f00 rw-p", "7f00-8000 r"] {
        assert_eq!(parse_mapping(bad), None);
    }
}
