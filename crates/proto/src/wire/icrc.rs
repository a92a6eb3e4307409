//! Invariant CRC of a `RoCEv2` packet.
