//! How much may be unacknowledged: the link's limit, less after losses.
//!
//! The link says what the receiver's socket buffer is good for. Other senders share that buffer and
//! the path, so a loss makes the window smaller, and acknowledged data opens it again. It opens
//! quickly up to where it stood after the loss, then by a packet per window.
//!
//! Going back costs all that is in flight, so on a path that loses packets at random a small window
//! is as good as any. But below [`USUAL_PACKETS`] the round trips cost more than the losses. Only
//! losses that follow each other within a window, which are those of a receiver that many senders
//! press, go lower. Where only what was lost is sent again, the average distance between losses
//! tells the two apart. Of a hundred losses at random, one packet in a hundred, fifteen are closer
//! than 16 packets.

/// The window never falls below this many full packets.
const MIN_PACKETS: u64 = 8;
/// Single losses do not make it smaller than this many.
const USUAL_PACKETS: u64 = 32;
/// Losses mended by selective repeat count if for each fewer than this many packets came through,
/// on average.
const DENSE_PACKETS: u64 = 16;
/// More than this many packets between two losses are not counted: the average is to follow what
/// happens now.
const FAR_PACKETS: u64 = 128;
/// Number of packets lost together that counts whatever the average says, unless the network loses
/// them as they go, in runs: if for each fewer than [`BURST_PACKETS`] came through.
const BURST: u64 = 4;
/// See [`BURST`].
const BURST_PACKETS: u64 = 4;
/// First window: what any receiver can hold. What is acknowledged opens it to the limit.
const FIRST: u32 = 160 << 10;

/// Bytes that may be in flight.
#[derive(Debug, Default)]
pub(super) struct SendWindow {
    limit: u64,
    current: u64,
    /// Below it the window grows by all that is acknowledged.
    threshold: u64,
    /// Acknowledged bytes that have not yet opened the window.
    credit: u64,
    /// Bytes acknowledged since the last loss.
    delivered: u64,
    /// Packets between two losses that selective repeat mended, on average over the last few.
    spacing: u64,
    /// Full packet with its overhead.
    packet: u64,
    /// Losses of packets sent before this sequence belong to the last loss that was acted on.
    recovery: u64,
}

impl SendWindow {
    /// An open window.
    pub(super) fn new(limit: u32, packet: u32) -> Self {
        let mut window = Self {
            packet: u64::from(packet),
            spacing: FAR_PACKETS,
            ..Self::default()
        };
        window.set_limit(limit);
        window
    }

    /// Takes over a new limit of the link.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = u64::from(limit);
        self.current = self.limit.min(FIRST.into());
        self.threshold = self.limit;
        self.delivered = self.limit;
    }

    /// Bytes that may be in flight now.
    pub(super) fn current(&self) -> u64 {
        self.current
    }

    /// `bytes` were acknowledged.
    #[inline]
    pub(super) fn on_progress(&mut self, bytes: u64) {
        self.delivered = self.delivered.saturating_add(bytes);
        if self.current >= self.limit {
            return;
        }
        if self.current < self.threshold {
            self.current += bytes;
        } else {
            self.credit += bytes;
            if self.credit >= self.current {
                self.credit -= self.current;
                self.current += self.packet;
            }
        }
        self.current = self.current.min(self.limit);
    }

    /// Takes note of lost packets, where nothing else is sent again. That costs what they cost, so
    /// only if they are a large part of all does it count: then the receiver cannot follow. Two
    /// losses that happen to be neighbours say nothing.
    pub(super) fn on_gaps(&mut self, packets: u64) {
        let apart = (self.delivered / (packets.max(1) * self.packet.max(1))).min(FAR_PACKETS);
        self.spacing = (self.spacing * 3 + apart) / 4;
        let is_burst = packets >= BURST && apart < BURST_PACKETS;
        if is_burst || self.spacing < DENSE_PACKETS {
            let least = (MIN_PACKETS * self.packet).min(self.limit);
            self.current = (self.current / 4 * 3).max(least);
            self.threshold = self.current;
        } else {
            // Nor do they hold it down where others have brought it: while the oldest packet is
            // missing, what came behind it is in flight, and the sender is to have more than that
            // to send.
            self.threshold = self.limit;
        }
        (self.credit, self.delivered) = (0, 0);
    }

    /// The packet `oldest` was lost, when those before `sent` had been sent.
    pub(super) fn on_loss(&mut self, oldest: u64, sent: u64) {
        if oldest < self.recovery {
            return;
        }
        self.recovery = sent;
        let usual = (USUAL_PACKETS * self.packet).min(self.limit);
        let (least, target) = if self.delivered < self.current {
            (
                (MIN_PACKETS * self.packet).min(self.limit),
                self.current / 2,
            )
        } else {
            (usual, self.current / 4 * 3)
        };
        // Never more than it was: a single loss does not open a window that many have closed.
        self.current = target.max(least).min(self.current);
        self.threshold = self.current.max(usual);
        (self.credit, self.delivered) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_event_counts_once_and_progress_reopens() {
        let mut w = SendWindow::new(100_000, 1000);
        w.on_loss(5, 90);
        w.on_loss(30, 95);
        assert_eq!(w.current(), 75_000, "one event");
        w.on_loss(90, 120);
        assert_eq!(w.current(), 37_500, "another before a window was delivered");
        for _ in 0..10_000 {
            w.on_progress(1000);
        }
        assert_eq!(w.current(), 100_000);
    }

    #[test]
    fn losses_never_close_the_window() {
        let mut w = SendWindow::new(100_000, 1000);
        for n in 0..100 {
            w.on_loss(n, n + 1);
        }
        assert_eq!(w.current(), 8000);
        let mut tiny = SendWindow::new(500, 1000);
        tiny.on_loss(0, 1);
        assert_eq!(tiny.current(), 500);
    }

    #[test]
    fn gaps_at_random_leave_the_window_open() {
        let (limit, packet) = (400_000, 1000);
        let mut w = SendWindow::new(limit, packet);
        w.on_progress(limit.into());
        // One packet in a hundred, now and then two close to each other.
        for apart in [150, 40, 90, 5, 210, 100, 14, 120, 60, 170].repeat(20) {
            w.on_progress(apart * u64::from(packet));
            w.on_gaps(1);
            assert!(w.current() >= u64::from(limit / 2), "{}", w.current());
        }
        // The network loses them as they go, in runs.
        for apart in [150, 40, 90, 5, 210, 100, 14, 120, 60, 170].repeat(20) {
            w.on_progress(17 * apart * u64::from(packet));
            w.on_gaps(17);
            assert!(w.current() >= u64::from(limit / 2), "{}", w.current());
        }
        for _ in 0..3 {
            w.on_progress(20 * u64::from(packet));
            w.on_gaps(10);
        }
        assert!(w.current() < u64::from(limit / 2), "many at once");
        for _ in 0..4 {
            w.on_progress(100 * u64::from(packet));
            w.on_gaps(1);
        }
        assert!(
            w.current() >= u64::from(limit / 2),
            "it opens quickly again"
        );
    }

    #[test]
    fn gaps_one_after_the_other_close_the_window() {
        let mut w = SendWindow::new(1 << 20, 1000);
        for _ in 0..60 {
            w.on_progress(10_000);
            w.on_gaps(1);
        }
        assert_eq!(w.current(), MIN_PACKETS * 1000);
    }

    #[test]
    fn rare_losses_leave_a_window_that_is_worth_its_round_trips() {
        let mut w = SendWindow::new(100_000, 1000);
        for n in 0..100 {
            w.on_progress(100_000);
            w.on_loss(n, n + 1);
            assert!(w.current() >= 32_000);
        }
        w.on_loss(200, 201);
        w.on_loss(201, 202);
        assert!(w.current() < 32_000, "losses one after the other");
        let narrow = w.current();
        w.on_progress(narrow);
        assert!(w.current() >= 2 * narrow, "it opens quickly again");
    }
}
