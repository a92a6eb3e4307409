//! Reject reasons.

use core::fmt;

/// Why a conversation was rejected. Unknown values are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejReason(pub u16);

macro_rules! reasons {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl RejReason {
            $(#[doc = concat!("Reason ", $value, ": ", $text, ".")] pub const $name: Self = Self($value);)*

            /// Name of the reason in the specification, for a person.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self.0 { $($value => $text,)* _ => "unknown reason" }
            }
        }
    };
}

reasons! {
    NO_QP = 1, "no queue pair available";
    NO_EEC = 2, "no end-to-end context available";
    NO_RESOURCES = 3, "no resources available";
    TIMEOUT = 4, "timeout";
    UNSUPPORTED = 5, "unsupported request";
    INVALID_COMM_ID = 6, "invalid communication id";
    INVALID_COMM_INSTANCE = 7, "invalid communication instance";
    INVALID_SERVICE_ID = 8, "invalid service id (nobody listens)";
    INVALID_TRANSPORT = 9, "invalid transport service type";
    STALE_CONNECTION = 10, "stale connection";
    RDC_ABSENT = 11, "reliable datagram channel does not exist";
    INVALID_GID = 12, "primary remote GID rejected";
    INVALID_LID = 13, "primary remote LID rejected";
    INVALID_SL = 14, "primary service level rejected";
    INVALID_TRAFFIC_CLASS = 15, "primary traffic class rejected";
    INVALID_HOP_LIMIT = 16, "primary hop limit rejected";
    INVALID_PACKET_RATE = 17, "primary packet rate rejected";
    INVALID_ALT_GID = 18, "alternate remote GID rejected";
    INVALID_ALT_LID = 19, "alternate remote LID rejected";
    INVALID_ALT_SL = 20, "alternate service level rejected";
    INVALID_ALT_TRAFFIC_CLASS = 21, "alternate traffic class rejected";
    INVALID_ALT_HOP_LIMIT = 22, "alternate hop limit rejected";
    INVALID_ALT_PACKET_RATE = 23, "alternate packet rate rejected";
    PORT_CM_REDIRECT = 24, "connection manager and port redirection";
    PORT_REDIRECT = 25, "port redirection";
    INVALID_MTU = 26, "invalid path MTU";
    INSUFFICIENT_RESP_RESOURCES = 27, "insufficient responder resources";
    CONSUMER_DEFINED = 28, "rejected by the application";
    INVALID_RNR_RETRY = 29, "invalid RNR NAK retry count";
    DUPLICATE_LOCAL_COMM_ID = 30, "duplicate local communication id";
    INVALID_CLASS_VERSION = 31, "invalid class version";
    INVALID_FLOW_LABEL = 32, "invalid flow label";
    INVALID_ALT_FLOW_LABEL = 33, "invalid alternate flow label";
    VENDOR_OPTION_NOT_SUPPORTED = 35, "vendor option not supported";
}

impl fmt::Debug for RejReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.text())
    }
}
