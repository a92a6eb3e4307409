//! `ferroce sockets`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

/// What the memory with a process's counts is called, as `/proc/PID/fd` shows it.
const MEMORY: &str = "/memfd:ferroce-sockets (deleted)";
/// Where the counts begin in it; before them stand their texts, a line each.
const COUNTS_AT: usize = 2048;
/// Most bytes that are read of it. Any user can give a file that name, of any length; a later
/// library may count more.
const MOST: u64 = 4096;
/// Name of the client's end of a stream, as `/proc/net/unix` shows it.
const STREAM: &str = "@ferroce-sockets/t/";

/// Prints what each program says, and the streams whose client it is.
pub(crate) fn show() -> ExitCode {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let streams = streams(&table);
    let mut seen = Vec::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut pids: Vec<u32> = pids.collect();
    pids.sort_unstable();
    for pid in pids {
        show_process(pid, &streams, &mut seen);
    }
    if seen.is_empty() {
        println!("no program of `ferroce run --sockets` that you may see uses sockets");
    }
    ExitCode::SUCCESS
}

fn show_process(pid: u32, streams: &BTreeMap<u64, String>, seen: &mut Vec<u64>) {
    let folder = format!("/proc/{pid}");
    let files = fs::read_dir(format!("{folder}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let files: Vec<_> = files
        .filter_map(|file| Some((file.file_name(), fs::read_link(file.path()).ok()?)))
        .collect();
    let program = fs::read_to_string(format!("{folder}/comm")).unwrap_or_default();
    let program = printable(program.trim());
    let memory = files.iter().find(|(_, link)| link == Path::new(MEMORY));
    let memory = memory.map(|(number, _)| Path::new(&folder).join("fd").join(number));
    let inode = memory
        .as_ref()
        .and_then(|path| fs::metadata(path).ok())
        .map(|m| m.ino());
    if let Some((path, inode)) = memory.zip(inode).filter(|(_, inode)| !seen.contains(inode)) {
        seen.push(inode);
        println!("{pid} {program}");
        for (text, count) in counts(&beginning(&path)) {
            println!("  {count:8} {text}");
        }
    }
    let socket = |link: &Path| {
        let name = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        streams.get(&name.parse().ok()?)
    };
    for (number, link) in &files {
        if let Some(stream) = socket(link) {
            println!("  {pid} {program} fd {} stream {stream}", number.display());
        }
    }
}

/// The first bytes of a file.
fn beginning(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST).read_to_end(&mut bytes));
    read.map(|_| bytes).unwrap_or_default()
}

/// Text of another user's, without what a terminal obeys.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// The counts that are not zero.
fn counts(memory: &[u8]) -> Vec<(String, u64)> {
    let Some((texts, counts)) = memory.split_at_checked(COUNTS_AT) else {
        return Vec::new();
    };
    let texts = String::from_utf8_lossy(texts);
    let texts = texts.trim_end_matches('\0').lines().map(printable);
    let (counts, _) = counts.as_chunks::<8>();
    let counts = counts.iter().map(|bytes| u64::from_ne_bytes(*bytes));
    texts.zip(counts).filter(|(_, count)| *count > 0).collect()
}

/// Streams by the inode of their client's end, with their connection's ends.
fn streams(table: &str) -> BTreeMap<u64, String> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut parts = words.get(7)?.strip_prefix(STREAM)?.split('/');
        let (client, server) = (parts.next()?, parts.next()?);
        let inode = words[6].parse().ok()?;
        Some((inode, format!("{} -> {}", end(client)?, end(server)?)))
    };
    table.lines().filter_map(row).collect()
}

/// An end as the name has it: 32 hexadecimal digits of the address, 4 of the port.
fn end(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_at_checked(32)?;
    let ip = Ipv6Addr::from_bits(u128::from_str_radix(ip, 16).ok()?);
    Some((ip.to_canonical(), u16::from_str_radix(port, 16).ok()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_read_from_the_kernels_table() {
        let table = "Num RefCount Protocol Flags Type St Inode Path\n\
            0000: 00000003 00000000 00000000 0001 03 77 @ferroce-sockets/t/\
            00000000000000000000ffff7f000001c350/00000000000000000000ffff7f0000010050/1c\n\
            0000: 00000003 00000000 00000000 0001 03 78 /run/x\n\
            0000: 00000003 00000000 00000000 0001 03 79\n";
        let streams = streams(table);
        assert_eq!(streams.len(), 1);
        assert_eq!(streams[&77], "127.0.0.1:50000 -> 127.0.0.1:80");
    }

    #[test]
    fn counts_stand_behind_their_texts() {
        let mut memory = b"one\ntwo\nthree".to_vec();
        memory.resize(COUNTS_AT, 0);
        for count in [1_u64, 0, 3] {
            memory.extend(count.to_ne_bytes());
        }
        let expected = [("one".to_owned(), 1), ("three".to_owned(), 3)];
        assert_eq!(counts(&memory), expected);
        assert!(counts(b"short").is_empty());
    }

    #[test]
    fn texts_of_others_do_not_reach_the_terminal_as_orders() {
        assert_eq!(printable("a\x1b[2J\u{9b}b\r"), "a[2Jb");
        let file = std::env::temp_dir().join(format!("ferroce-sockets-{}", std::process::id()));
        fs::write(&file, [7; 10_000]).expect("a file");
        assert_eq!(beginning(&file).len() as u64, MOST);
        fs::remove_file(&file).expect("the file");
        assert!(beginning(&file).is_empty());
    }
}
