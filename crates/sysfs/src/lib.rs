//! A library to preload, which shows Ferroce's devices to programs that look for them in
//! `/sys/class/infiniband`, `/sys/class/infiniband_verbs` and `/dev/infiniband`.
//! `ferroce run` puts it into `LD_PRELOAD`, so it comes into every program: it has no constructor.
//! Besides, it answers `dlopen` of copies of the two libraries (`hooks::load`), and takes itself
//! from the environment of programs that must not get it (`hooks::exec`).
//!
//! It answers on sockets of `NETLINK_RDMA`, too (`netlink`).
//!
//! It stands in front of the C library's functions that take a path (`hooks`). Paths that cannot be
//! ours go on at once. For others it asks the drop-in library what is there (`source`), which makes
//! the answer from the devices at that moment. So there is nothing in any file system, and nothing
//! to remove when a program ends, however it ends.
//!
//! A file is handed out as a descriptor of anonymous memory (`memfd_create(2)`) with the content,
//! and a folder as an empty one. The memory's name is the path, so a descriptor says what it is
//! (`tag`) without a table that could be wrong after `dup`, `close` or `fork`. A file's content is
//! made anew whenever it is read from its beginning, as the kernel does it: counters move.
//!
//! What it cannot do: programs that make system calls without the C library (static ones, Go) see
//! the kernel's files. So do the few functions of the C library that are not here (`nftw`,
//! `fts_open`), and children of a process that changed to one of our folders: they start in the
//! nearest folder that exists.

mod entry;
mod errno;
mod hooks;
mod netlink;
mod next;
mod place;
mod said;
mod source;
mod tag;
mod workdir;
