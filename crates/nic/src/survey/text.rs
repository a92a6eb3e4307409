//! A survey as text: a line per entry, its kind first, fields separated by tabulators.

use std::fmt::Write as _;
use std::str::Split;

use super::{Count, Flow, Means, Neighbour, QueuePair, Survey};

/// Version of the format, the first line.
const FORMAT: &str = "ferroce survey 1";

/// The fields of a line.
type Fields<'a> = Split<'a, char>;

impl Survey {
    /// The text.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("{FORMAT}\n");
        for m in &self.means {
            line(&mut text, "means", &[&m.name, &flag(m.usable), &m.why]);
        }
        for n in &self.neighbours {
            let slot = n.slot.to_string();
            line(&mut text, "neighbour", &[&slot, &flag(n.direct), &n.why]);
        }
        for flow in &self.flows {
            line(
                &mut text,
                "flow",
                &flow_fields(flow).each_ref().map(|f| &**f),
            );
        }
        line(&mut text, "untold", &[&self.untold.to_string()]);
        let lists = [
            ("count", &self.counts),
            ("statistic", &self.statistics),
            ("object", &self.objects),
        ];
        for (kind, list) in lists {
            for c in list {
                line(&mut text, kind, &[&c.device, &c.what, &c.value.to_string()]);
            }
        }
        for qp in &self.queue_pairs {
            let fields = [qp.number, qp.kind, qp.state, qp.peer, qp.sq_psn, qp.rq_psn];
            let fields = fields.map(|field| field.to_string());
            let [number, kind, state, peer, sq_psn, rq_psn] = fields.each_ref().map(|f| &**f);
            line(
                &mut text,
                "qp",
                &[&qp.device, number, kind, state, peer, sq_psn, rq_psn],
            );
        }
        text
    }

    /// Reads such a text. `None`: it is none. Lines of a kind that is not known are passed over.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != FORMAT {
            return None;
        }
        let mut survey = Self::default();
        for line in lines {
            let mut fields = line.split('\t');
            match fields.next()? {
                "means" => survey.means.push(read_means(&mut fields)?),
                "neighbour" => survey.neighbours.push(read_neighbour(&mut fields)?),
                "flow" => survey.flows.push(read_flow(&mut fields)?),
                "untold" => survey.untold = fields.next()?.parse().ok()?,
                "count" => survey.counts.push(read_count(&mut fields)?),
                "statistic" => survey.statistics.push(read_count(&mut fields)?),
                "object" => survey.objects.push(read_count(&mut fields)?),
                "qp" => survey.queue_pairs.push(read_queue_pair(&mut fields)?),
                _ => {}
            }
        }
        Some(survey)
    }
}

fn flag(is: bool) -> String {
    if is { "1" } else { "0" }.to_owned()
}

fn line(text: &mut String, kind: &str, fields: &[&str]) {
    text.push_str(kind);
    for field in fields {
        // No name or reason has any; a peer's could.
        let field = field.replace(['\t', '\n', '\r'], " ");
        write!(text, "\t{field}").expect("invariant: strings can be written to");
    }
    text.push('\n');
}

fn flow_fields(flow: &Flow) -> [String; 13] {
    let direct = flow.direct.map(flag).unwrap_or_default();
    let atomics = flow.atomics.map(flag).unwrap_or_default();
    [
        flow.count.to_string(),
        flow.example.to_string(),
        flow.device.clone(),
        flow.transport.clone(),
        flow.to.clone(),
        flow.slot.map(|slot| slot.to_string()).unwrap_or_default(),
        flow.packets.clone(),
        flow.packets_why.clone(),
        direct,
        flow.direct_why.clone(),
        flag(flow.mapped),
        atomics,
        flow.atomics_why.clone(),
    ]
}

fn read_means(fields: &mut Fields<'_>) -> Option<Means> {
    Some(Means {
        name: string(fields)?,
        usable: read_flag(fields.next()?)?,
        why: string(fields)?,
    })
}

fn read_neighbour(fields: &mut Fields<'_>) -> Option<Neighbour> {
    Some(Neighbour {
        slot: fields.next()?.parse().ok()?,
        direct: read_flag(fields.next()?)?,
        why: string(fields)?,
    })
}

fn read_flow(fields: &mut Fields<'_>) -> Option<Flow> {
    Some(Flow {
        count: fields.next()?.parse().ok()?,
        example: fields.next()?.parse().ok()?,
        device: string(fields)?,
        transport: string(fields)?,
        to: string(fields)?,
        slot: optional(fields.next()?, |slot| slot.parse().ok())?,
        packets: string(fields)?,
        packets_why: string(fields)?,
        direct: optional(fields.next()?, read_flag)?,
        direct_why: string(fields)?,
        // Processes of an older build do not say these.
        mapped: fields.next().and_then(read_flag).unwrap_or_default(),
        atomics: optional(fields.next().unwrap_or_default(), read_flag)?,
        atomics_why: string(fields).unwrap_or_default(),
    })
}

fn read_count(fields: &mut Fields<'_>) -> Option<Count> {
    Some(Count {
        device: string(fields)?,
        what: string(fields)?,
        value: fields.next()?.parse().ok()?,
    })
}

fn read_queue_pair(fields: &mut Fields<'_>) -> Option<QueuePair> {
    let device = string(fields)?;
    let mut number = || fields.next()?.parse().ok();
    Some(QueuePair {
        device,
        number: number()?,
        kind: number()?,
        state: number()?,
        peer: number()?,
        sq_psn: number()?,
        rq_psn: number()?,
    })
}

fn string(fields: &mut Fields<'_>) -> Option<String> {
    fields.next().map(str::to_owned)
}

fn read_flag(field: &str) -> Option<bool> {
    match field {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// An empty field stands for nothing; another one must be readable.
fn optional<T>(field: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if field.is_empty() {
        return Some(None);
    }
    read(field).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey() -> Survey {
        Survey {
            means: vec![Means {
                name: "direct".into(),
                usable: false,
                why: "FERROCE_DIRECT=0".into(),
            }],
            neighbours: vec![Neighbour {
                slot: 7,
                direct: true,
                why: String::new(),
            }],
            flows: vec![
                Flow {
                    count: 3,
                    example: 0x1234,
                    device: "ferroce_lo".into(),
                    transport: "RC".into(),
                    to: "127.0.0.1".into(),
                    slot: Some(7),
                    packets: "shared ring".into(),
                    direct: Some(false),
                    direct_why: "because".into(),
                    mapped: true,
                    atomics: Some(true),
                    atomics_why: "for a reason".into(),
                    ..Flow::default()
                },
                Flow::default(),
            ],
            untold: 2,
            counts: vec![Count {
                device: "ferroce_lo".into(),
                what: "direct_writes".into(),
                value: 9,
            }],
            statistics: vec![Count::default()],
            objects: vec![Count::default()],
            queue_pairs: vec![QueuePair {
                device: "ferroce_lo".into(),
                number: 0x1234,
                kind: 2,
                state: 3,
                peer: 5,
                sq_psn: 6,
                rq_psn: 7,
            }],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let survey = survey();
        assert_eq!(Survey::from_text(&survey.to_text()), Some(survey));
    }

    #[test]
    fn what_older_processes_say_is_read() {
        let survey = Survey {
            flows: vec![Flow {
                direct_why: "last".into(),
                ..Flow::default()
            }],
            ..Survey::default()
        };
        let text = survey.to_text();
        let (older, _) = text.split_once("last").expect("a reason");
        let read = Survey::from_text(&format!("{older}last\n"));
        assert_eq!(read, Some(survey));
    }

    #[test]
    fn nothing_makes_it_panic() {
        assert_eq!(Survey::from_text(""), None);
        assert_eq!(Survey::from_text("another format\n"), None);
        let text = survey().to_text();
        for at in 0..text.len() {
            // Cut anywhere: something is missing, or the last lines are.
            let _ = Survey::from_text(&text[..at]);
        }
        assert_eq!(
            Survey::from_text(&format!("{FORMAT}\nflow\tx\n")),
            None,
            "a count that is no number"
        );
        assert_eq!(
            Survey::from_text(&format!("{FORMAT}\nsomething new\t1\n")),
            Some(Survey::default())
        );
    }

    #[test]
    fn separators_in_names_do_no_harm() {
        let mut survey = survey();
        survey.means[0].why = "a\tb\nc".into();
        let read = Survey::from_text(&survey.to_text()).unwrap();
        assert_eq!(read.means[0].why, "a b c");
    }
}
