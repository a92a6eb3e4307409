//! Small steps that every program on the `ferroce` library takes, with errors for a person.

use ferroce::cm::{EventChannel, Id};
use ferroce::cq::{Completion, Done};
use ferroce::device::Context;

/// A failure, for a person.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// The context of an identifier that has met its device.
pub(crate) fn context(id: &Id) -> Outcome<Context> {
    id.context()
        .ok_or_else(|| "the identifier is on no device".into())
}

/// Wants success.
pub(crate) fn done(completion: Completion) -> Outcome<Done> {
    completion.result.map_err(|e| format!("work failed: {e}"))
}

/// Waits for an event.
pub(crate) fn event(
    channel: &EventChannel,
    kind: ferroce::cm::EventKind,
) -> Outcome<ferroce::cm::Event> {
    channel.expect(kind).map_err(text)
}

/// An error as text.
pub(crate) fn text(error: ferroce::Error) -> String {
    error.to_string()
}
