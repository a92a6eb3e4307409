//! The file with the pre-shared key.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ferroce_os::unix::Credentials;
use ferroce_proto::auth::LEAST_KEY;

use super::VARIABLE;
use crate::Error;

/// A longer file is no key.
const MOST: u64 = 4096;
/// Bits of the mode that let group and others in.
const OTHERS: u32 = 0o077;
/// Different bytes that a random key has at the least: 32 random bytes have fewer once in 10^15.
const LEAST_DIFFERENT: usize = 16;

/// Reads the key.
///
/// # Errors
/// The system's errno if it cannot be read, EACCES if others may read it, EINVAL if it is no key of
/// 256 bits.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let fail = |errno, why: &str| {
        let reason = format!("{VARIABLE}={}: {why}", path.display());
        Error::new(errno, reason)
    };
    let system = |error: std::io::Error| {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        fail(errno, &error.to_string())
    };
    let file = File::open(path).map_err(system)?;
    check(&file.metadata().map_err(system)?).map_err(|(errno, why)| fail(errno, why))?;
    let mut bytes = Vec::new();
    file.take(MOST + 1)
        .read_to_end(&mut bytes)
        .map_err(system)?;
    let key = key_in(&bytes).map_err(|why| fail(libc::EINVAL, why))?;
    Ok(key)
}

/// Only this user and root may have the key.
fn check(file: &Metadata) -> Result<(), (i32, &'static str)> {
    if !file.is_file() {
        return Err((libc::EINVAL, "it is no regular file"));
    }
    if file.uid() != Credentials::own().uid && file.uid() != 0 {
        return Err((libc::EACCES, "it belongs to another user"));
    }
    if file.mode() & OTHERS != 0 {
        return Err((
            libc::EACCES,
            "its group or others may open it (chmod 600 it)",
        ));
    }
    Ok(())
}

/// The key that a file's content stands for: the bytes themselves, or a line of hexadecimal digits.
fn key_in(bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
    if bytes.len() as u64 > MOST {
        return Err("it is longer than 4096 bytes");
    }
    let text = bytes.trim_ascii();
    let is_text = text.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let key = if is_text {
        from_hex(text).ok_or(
            "text is no key: it must be one line of hexadecimal digits (openssl rand -hex 32), or raw bytes",
        )?
    } else {
        bytes.to_vec()
    };
    if key.len() < LEAST_KEY {
        return Err("a key has 256 bits or more (openssl rand -hex 32)");
    }
    let mut seen = [false; 256];
    for byte in &key {
        seen[usize::from(*byte)] = true;
    }
    if seen.iter().filter(|seen| **seen).count() < LEAST_DIFFERENT {
        return Err("its bytes are not random (openssl rand -hex 32)");
    }
    Ok(key)
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, []) = text.as_chunks::<2>() else {
        return None;
    };
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_bytes_and_hexadecimal_digits_are_keys() {
        let raw: Vec<u8> = (100..140).collect();
        assert_eq!(key_in(&raw), Ok(raw.clone()));
        let mut hex = raw.iter().map(|b| format!("{b:02X}")).collect::<String>();
        hex.push('\n');
        assert_eq!(key_in(hex.as_bytes()), Ok(raw));
    }

    #[test]
    fn what_is_short_or_guessable_is_no_key() {
        let raw: Vec<u8> = (200..231).collect();
        assert!(key_in(&raw).is_err(), "31 bytes");
        assert!(key_in(&[]).is_err());
        assert!(key_in(b"correct horse battery staple correct horse battery").is_err());
        assert!(key_in(&[b'0'; 64]).is_err());
        assert!(key_in(&[0xff; 64]).is_err());
        assert!(key_in("0123456789abcdef".repeat(3).as_bytes()).is_err());
        assert!(key_in(&vec![0x80; 5000]).is_err());
    }
}
