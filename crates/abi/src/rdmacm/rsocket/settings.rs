//! Defaults of the host: files under `/etc/rdma/rsocket` with one number each, as librdmacm reads
//! them.

use std::fs;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

/// The defaults. `wake_up_interval` is not among them: nothing here needs a look from time to time.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostDefaults {
    polling_time: Duration,
    pub(super) inline: u32,
    pub(super) send_queue: u32,
    pub(super) receive_queue: u32,
    pub(super) receive_buffer: u32,
    pub(super) send_buffer: u32,
    pub(super) iomaps: u16,
}

/// Bytes of each buffer. librdmacm has a quarter of that: two peers that take turns on one
/// processor would sleep for each 64 KiB. Pages that no byte comes to are not filled.
const BUFFER: u32 = 1 << 19;
/// Smallest send buffer.
pub(super) const LEAST_SEND_BUFFER: u32 = 4096;

fn number<T: FromStr>(name: &str, default: T) -> T {
    let text = fs::read_to_string(format!("/etc/rdma/rsocket/{name}"));
    let number = text.ok().and_then(|text| text.trim().parse().ok());
    number.unwrap_or(default)
}

/// The host's defaults.
pub(super) fn get() -> &'static HostDefaults {
    static SETTINGS: OnceLock<HostDefaults> = OnceLock::new();
    SETTINGS.get_or_init(|| HostDefaults {
        polling_time: Duration::from_micros(number("polling_time", 10)),
        inline: number("inline_default", 64),
        send_queue: number("sqsize_default", 384),
        receive_queue: number("rqsize_default", 384),
        receive_buffer: number("mem_default", BUFFER).max(2),
        send_buffer: number("wmem_default", BUFFER).max(LEAST_SEND_BUFFER),
        iomaps: number("iomap_size", 0),
    })
}

/// How long a call polls before it sleeps.
pub(super) fn polling_time() -> Duration {
    get().polling_time
}
