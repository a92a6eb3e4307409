//! Why a peer rejected a connection.

use std::fmt;

/// Why a peer rejected a connection. Over RoCE and InfiniBand the reasons of a REJ (IBTA 1.5 volume
/// 1, 12.6.7.2); over iWARP a negative errno, as the kernel's iWARP connection manager gives it.
///
/// ```
/// use ferroce::cm::RejectReason;
/// assert_eq!(RejectReason::CONSUMER.to_string(), "28 (by its program)");
/// assert_eq!(RejectReason(34).to_string(), "34"); // has no name
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub i32);

/// Makes the reasons of one list: name, number, the documentation, and what a person reads.
macro_rules! reasons {
    ($($name:ident = $number:expr, $says:literal, $meaning:literal;)*) => {
        impl RejectReason {
            $(
                #[doc = $says]
                pub const $name: Self = Self($number);
            )*

            fn meaning(self) -> Option<&'static str> {
                Some(match self {
                    $(Self::$name => $meaning,)*
                    _ => return None,
                })
            }
        }
    };
}

reasons! {
    NO_QUEUE_PAIR = 1, "The peer has no queue pair left.", "it has no queue pair left";
    NO_EE_CONTEXT = 2, "The peer has no end-to-end context left, of reliable datagrams.",
        "it has no end-to-end context left";
    NO_RESOURCES = 3, "The peer has not the resources.", "it has not the resources";
    TIMEOUT = 4, "The peer's answer took too long.", "its answer took too long";
    UNSUPPORTED = 5, "The peer does not support the request.", "it does not support the request";
    INVALID_COMMUNICATION_ID = 6,
        "The peer knows no conversation of this communication identifier, or is in another one.",
        "it knows no such communication identifier";
    INVALID_COMMUNICATION_INSTANCE = 7,
        "The identifier is of another conversation: numbers or keys do not fit.",
        "the communication identifier is of another conversation";
    NO_LISTENER = 8, "Nobody listens there.", "nobody listens there";
    INVALID_TRANSPORT = 9, "The listener is for another transport.",
        "the listener is for another transport";
    STALE = 10, "The queue pair is of an earlier connection that the peer still holds.",
        "an earlier connection of the queue pair is not over";
    NO_DATAGRAM_CHANNEL = 11, "The peer has no such channel of reliable datagrams.",
        "it has no such channel of reliable datagrams";
    INVALID_GID = 12, "The peer cannot use the GID of the path.",
        "it cannot use the GID of the path";
    INVALID_LID = 13, "The peer cannot use the LID of the path.",
        "it cannot use the LID of the path";
    INVALID_SERVICE_LEVEL = 14, "The peer cannot use the service level of the path.",
        "it cannot use the service level of the path";
    INVALID_TRAFFIC_CLASS = 15, "The peer cannot use the traffic class of the path.",
        "it cannot use the traffic class of the path";
    INVALID_HOP_LIMIT = 16, "The peer cannot use the hop limit of the path.",
        "it cannot use the hop limit of the path";
    INVALID_PACKET_RATE = 17, "The peer cannot use the packet rate of the path.",
        "it cannot use the packet rate of the path";
    INVALID_ALTERNATE_GID = 18, "The peer cannot use the GID of the alternate path.",
        "it cannot use the GID of the alternate path";
    INVALID_ALTERNATE_LID = 19, "The peer cannot use the LID of the alternate path.",
        "it cannot use the LID of the alternate path";
    INVALID_ALTERNATE_SERVICE_LEVEL = 20,
        "The peer cannot use the service level of the alternate path.",
        "it cannot use the service level of the alternate path";
    INVALID_ALTERNATE_TRAFFIC_CLASS = 21,
        "The peer cannot use the traffic class of the alternate path.",
        "it cannot use the traffic class of the alternate path";
    INVALID_ALTERNATE_HOP_LIMIT = 22, "The peer cannot use the hop limit of the alternate path.",
        "it cannot use the hop limit of the alternate path";
    INVALID_ALTERNATE_PACKET_RATE = 23,
        "The peer cannot use the packet rate of the alternate path.",
        "it cannot use the packet rate of the alternate path";
    MANAGER_AND_PORT_REDIRECTED = 24,
        "The peer wants to be asked at another port, and by another connection manager.",
        "it is to be asked at another port and connection manager";
    PORT_REDIRECTED = 25, "The peer wants to be connected at another port.",
        "it is to be connected at another port";
    INVALID_MTU = 26, "The peer cannot take packets of this size.",
        "it cannot take packets of this size";
    INSUFFICIENT_RESPONDER_RESOURCES = 27,
        "The peer cannot serve as many READs and atomics at once.",
        "it cannot serve as many READs and atomics at once";
    CONSUMER = 28, "The peer's program decided so: `rdma_reject(3)`.", "by its program";
    INVALID_RNR_RETRY = 29, "The peer does not accept the number of RNR retries.",
        "it does not accept the number of RNR retries";
    DUPLICATE_COMMUNICATION_ID = 30,
        "The communication identifier is that of another conversation with the peer.",
        "the communication identifier is in use";
    INVALID_CLASS_VERSION = 31,
        "The peer's connection manager speaks another version of the protocol.",
        "its connection manager speaks another version";
    INVALID_FLOW_LABEL = 32, "The peer cannot use the flow label of the path.",
        "it cannot use the flow label of the path";
    INVALID_ALTERNATE_FLOW_LABEL = 33,
        "The peer cannot use the flow label of the alternate path.",
        "it cannot use the flow label of the alternate path";
    VENDOR_OPTION = 35,
        "The peer's program lacks an option of the adapter's vendor: `rdma_reject_ece(3)`.",
        "an option of the adapter's vendor is not supported";
    REFUSED = -libc::ECONNREFUSED,
        "Over iWARP: nobody listens there, or the peer's program decided so.", "refused";
    RESET = -libc::ECONNRESET, "Over iWARP: the peer closed the connection.",
        "it closed the connection";
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => write!(f, "{} ({meaning})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::RejectReason;

    #[test]
    fn every_reason_of_the_specification_has_a_name() {
        for number in (1..=33).chain([35]) {
            let reason = RejectReason(number);
            assert!(reason.meaning().is_some(), "{reason}");
        }
        let unknown = RejectReason::INVALID_COMMUNICATION_ID;
        assert_eq!(
            unknown.to_string(),
            "6 (it knows no such communication identifier)"
        );
    }
}
