use ferroce_proto::ids::{Key, PdId};
use ferroce_proto::mr::{Access, Backing, PeerRange, Piece, Region, Rights, Unmapped};

use super::pages::{mappings_allow, page_size, parse_mapping};
use super::touch;
use super::*;
use crate::sys::errno;

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
            RawMemory
                .write(span(&rights, start as u64, len as u64), &from)
                .expect("mapped");
            let mut to = vec![0; len];
            RawMemory
                .read(span(&rights, start as u64, len as u64), &mut to)
                .expect("mapped");
            assert_eq!(to, from);
            let mut to = b"before".to_vec();
            RawMemory
                .append(span(&rights, start as u64, len as u64), &mut to)
                .expect("mapped");
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
        RawMemory
            .write(word(), &5u64.to_ne_bytes())
            .expect("mapped");
        assert_eq!(RawMemory.fetch_add(word(), 2), Ok(5));
        assert_eq!(RawMemory.compare_swap(word(), 6, 9), Ok(7));
        assert_eq!(RawMemory.compare_swap(word(), 7, u64::MAX), Ok(7));
        assert_eq!(RawMemory.fetch_add(word(), 2), Ok(u64::MAX));
        assert_eq!(RawMemory.fetch_add(word(), 0), Ok(1));
    }
}

#[test]
fn atomics_of_several_threads_do_not_lose_each_other() {
    // A word that crosses the end of a cache line makes processors lock their bus, which the kernel
    // slows down or answers by SIGBUS.
    #[repr(align(64))]
    struct Line([u8; 64]);
    let mut line = Line([0; 64]);
    let rights = rights(&mut line.0);
    let words = || (span(&rights, 0, 8), span(&rights, 9, 8));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (aligned, unaligned) = words();
                for _ in 0..1000 {
                    RawMemory.fetch_add(aligned, 1).expect("mapped");
                    RawMemory.fetch_add(unaligned, 1).expect("mapped");
                }
            });
        }
    });
    let (aligned, unaligned) = words();
    assert_eq!(RawMemory.fetch_add(aligned, 0), Ok(4000));
    assert_eq!(RawMemory.fetch_add(unaligned, 0), Ok(4000));
}

/// Pages of which each has its own protection. Nobody else's get into their holes.
struct Pages {
    base: u64,
    len: u64,
}

impl Pages {
    fn new(protections: &[i32]) -> Self {
        let page = page_size();
        let len = page * protections.len() as u64;
        let size = usize::try_from(len).expect("small");
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let at = address(aside::place(size));
        // SAFETY: a new mapping, which takes no other's place.
        let base = unsafe { libc::mmap(at, size, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let this = Self {
            base: base as u64,
            len,
        };
        for (i, protection) in protections.iter().enumerate() {
            let (at, size) = (address(this.page(i)), usize::try_from(page).expect("small"));
            // SAFETY: a page of the mapping made above, to which nothing refers. -1 stands for a
            // hole.
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
    let listed = |at, writable| mappings_allow(pages.page(at), pages.page(at + 1), writable);
    assert_eq!(listed(0, true), Some(true));
    assert_eq!(listed(1, false), Some(true));
    assert_eq!(listed(1, true), Some(false));
    assert_eq!(listed(2, false), Some(false));
}

#[test]
fn an_access_that_changes_nothing_agrees() {
    let (rw, ro) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ);
    let pages = Pages::new(&[rw, rw, ro, libc::PROT_NONE, -1]);
    let content = [0xffff_ffff_u32, 2047];
    for (page, word) in content.iter().enumerate() {
        let word = word.to_ne_bytes();
        // SAFETY: the page is this test's own, and writable.
        unsafe { ptr::copy_nonoverlapping(word.as_ptr(), address(pages.page(page)), 4) };
    }
    let whole = 5 * page_size();
    for (writable, expected) in [
        (true, [true, true, false, false, false]),
        (false, [true, true, true, false, false]),
    ] {
        let found: Vec<_> = (0..5)
            .map(|page| touch::allowed(pages.page(page), page_size(), writable))
            .collect();
        assert_eq!(found, expected, "writable: {writable}");
        assert!(touch::allowed(pages.base, 2 * page_size(), writable));
        assert!(!touch::allowed(pages.base, whole, writable));
    }
    for (page, word) in content.iter().enumerate() {
        // SAFETY: the page is this test's own, and readable.
        let now = unsafe { ptr::read(address::<u32>(pages.page(page))) };
        assert_eq!(now, *word, "the content stays");
    }
}

#[test]
fn lines_of_the_list_are_understood() {
    let line = "7f00-8000 r--p 00000000 fe:00 123   /usr/lib/a b";
    assert_eq!(parse_mapping(line), Some((0x7f00..0x8000, "r--p")));
    for bad in ["", "x-y rw-p", "7f00 rw-p", "7f00-8000 r"] {
        assert_eq!(parse_mapping(bad), None);
    }
}

#[test]
fn memory_that_was_unmapped_is_an_error_and_not_the_end() {
    prepare();
    let (rw, ro) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ);
    for backing in [Backing::Mapped, Backing::OnDemand] {
        let pages = Pages::new(&[rw, -1, ro]);
        let access = Access::LOCAL_WRITE;
        let region = Region::new(PD, pages.base, pages.len, access).with_backing(backing);
        let mut rights = Rights::default();
        assert!(rights.insert(KEY, region));
        let open = |at, len| rights.open(KEY, PD, at, len, access).expect("inside");
        let page = page_size();
        let mut out = b"kept".to_vec();
        for (at, len) in [
            (pages.base, page + 1),
            (pages.page(1), 8),
            (pages.page(1) + 3, 1),
            (pages.page(2) - 100, 200),
        ] {
            let mut to = vec![0; usize::try_from(len).expect("small")];
            assert_eq!(RawMemory.read(open(at, len), &mut to), Err(Unmapped));
            assert_eq!(RawMemory.append(open(at, len), &mut out), Err(Unmapped));
            assert_eq!(out, b"kept");
            assert_eq!(RawMemory.write(open(at, len), &to), Err(Unmapped));
            // SAFETY: `to` has as many bytes as the span.
            let unordered = unsafe {
                let read = read_to(open(at, len), to.as_mut_ptr());
                (read, fill_from(open(at, len), to.as_ptr()))
            };
            assert_eq!(unordered, (Err(Unmapped), Err(Unmapped)));
        }
        let read_only = open(pages.page(2), 8);
        assert_eq!(RawMemory.write(read_only, &[1; 8]), Err(Unmapped));
        assert_eq!(RawMemory.read(read_only, &mut [0; 8]), Ok(()));
        for word in [pages.page(1), pages.page(2)] {
            assert_eq!(RawMemory.fetch_add(open(word, 8), 1), Err(Unmapped));
            assert_eq!(RawMemory.compare_swap(open(word, 8), 0, 1), Err(Unmapped));
        }
        assert_eq!(RawMemory.fetch_add(open(pages.base, 8), 7), Ok(0));
        assert_eq!(RawMemory.write(open(pages.base + 1, 21), &[5; 21]), Ok(()));
        let mut to = [0; 21];
        assert_eq!(RawMemory.read(open(pages.base + 1, 21), &mut to), Ok(()));
        assert_eq!(to, [5; 21]);
    }
}

#[test]
fn null_memory_gives_zeros_and_takes_everything() {
    let mut rights = Rights::default();
    let region = Region::new(PD, 0, u64::MAX, Access::LOCAL_WRITE).with_backing(Backing::Null);
    assert!(rights.insert(KEY, region));
    let span = rights
        .open(KEY, PD, 77, 8, Access::LOCAL_WRITE)
        .expect("inside");
    assert_eq!(RawMemory.write(span, &[1; 8]), Ok(()));
    let (mut to, mut out) = ([1; 8], vec![9]);
    assert_eq!(RawMemory.read(span, &mut to), Ok(()));
    assert_eq!(RawMemory.append(span, &mut out), Ok(()));
    assert_eq!((to, out), ([0; 8], vec![9, 0, 0, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn a_page_in_the_middle_that_does_not_allow_the_access_is_a_fault() {
    let (rw, ro) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ);
    let pages = Pages::new(&[rw, rw, ro, rw, rw]);
    assert_eq!(probe(pages.base, pages.len, true), Err(libc::EFAULT));
    assert_eq!(probe(pages.base, pages.len, false), Ok(()));
    let pages = Pages::new(&[rw, rw, libc::PROT_NONE, rw, rw]);
    assert_eq!(probe(pages.base, pages.len, false), Err(libc::EFAULT));
    assert!(prefetch(pages.base, page_size(), true, true).is_ok());
    assert!(prefetch(pages.base, pages.len, true, true).is_err());
    assert!(prefetch(pages.base, pages.len, true, false).is_ok());
}

/// Three pages, of which the last is not mapped: what is before it is copied.
#[test]
fn a_run_is_copied_up_to_the_first_place_that_is_not_mapped() {
    let proof = ProofPage::new(0x1234_5678).unwrap();
    let process = OtherProcess::open(Task::this(), proof.proof()).unwrap();
    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    let pages = Pages::new(&[read_write, read_write, -1]);
    let range = |page, offset, len| PeerRange {
        addr: pages.page(page) + offset,
        len,
    };
    // Two neighbours, and two that are not.
    let places = [
        range(0, 8, 8),
        range(0, 16, 4),
        range(1, 100, 3),
        range(2, 0, 9),
    ];
    let bytes: Vec<u8> = (1..=24).collect();
    let pieces = [Piece::Inline(&bytes[..10]), Piece::Inline(&bytes[10..])];
    let whole = [&bytes[..10], &bytes[10..15]].map(Piece::Inline);
    assert_eq!(process.write_run(&whole, &places[..3]).unwrap(), 15);
    assert_eq!(process.write_run(&pieces, &places).unwrap(), 15);
    let none = process.write_run(&pieces[..1], &[range(2, 0, 10)]);
    assert_eq!(none.unwrap(), 0);
    let unequal = process.write_run(&pieces, &places[..3]);
    assert_eq!(unequal.map_err(|e| errno(&e)), Err(libc::EINVAL));
    let mut here = [0xaa_u8; 24];
    let rights = rights(&mut here);
    let to = [Piece::Registered(span(&rights, 0, 24))];
    assert_eq!(process.read_run(&places, &to).unwrap(), 15);
    let mut around = [0xaa_u8; 14];
    let rights = self::rights(&mut around);
    let to = [Piece::Registered(span(&rights, 0, 14))];
    process.read(pages.page(0) + 7, &to, 14).unwrap();
    drop(rights);
    assert_eq!(here[..15], bytes[..15]);
    assert_eq!(here[15..], [0xaa; 9]);
    assert_eq!(around[0], 0, "before the places");
    assert_eq!(around[1..13], bytes[..12]);
    assert_eq!(around[13], 0, "behind them");
}

/// Places of one page, with what is between them and without, and a page that is not mapped.
#[test]
fn what_is_between_the_places_of_a_run_goes_nowhere() {
    let proof = ProofPage::new(0x1234_5678).unwrap();
    let process = OtherProcess::open(Task::this(), proof.proof()).unwrap();
    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    let pages = Pages::new(&[read_write, read_write, -1]);
    let bytes: Vec<u8> = (0..=250).cycle().take(2 * 4096).collect();
    let whole = [Piece::Inline(&bytes)];
    process.write(&whole, pages.base, bytes.len()).unwrap();
    // At 4094 one lies in two pages. The last begins in the page that is not mapped.
    let offsets = [8, 24, 2000, 2064, 2060, 4094, 4128, 6000, 8184, 8192];
    let places = offsets.map(|at| PeerRange {
        addr: pages.base + at as u64,
        len: 8,
    });
    let of_place = |at: &usize| bytes.iter().skip(*at).take(8).copied();
    let due: Vec<u8> = offsets.iter().flat_map(of_place).collect();
    for count in 1..=places.len() {
        let mut here = vec![0xaa_u8; 8 * count];
        let rights = rights(&mut here);
        // Of places and pieces none ends where the other does, but at the end.
        let mut to = Vec::new();
        for at in (0..8 * count as u64).step_by(5) {
            let len = (8 * count as u64 - at).min(5);
            to.push(Piece::Registered(span(&rights, at, len)));
        }
        let copied = process.read_run(&places[..count], &to).unwrap();
        drop(rights);
        assert_eq!(copied, 8 * count.min(9), "{count} places");
        assert_eq!(here[..copied], due[..copied], "{count} places");
        assert!(here[copied..].iter().all(|byte| *byte == 0xaa));
    }
}
