//! What was seen, for people and for programs.

use std::collections::HashMap;

use ferroce_nic::survey::{Count, Flow, Means, Neighbour, Process, Said, Survey};
use serde_json::{Value, json};

use super::Seen;
use super::trial::Tried;

/// Names of processes by slot.
type Names = HashMap<u16, String>;

/// The text.
pub(super) fn to_text(seen: &Seen) -> String {
    let mut text = "This machine, tried between two processes just now\n".to_owned();
    for tried in &seen.tried {
        text.push_str(&tried_text(tried));
    }
    text.push_str("\nProcesses with an open device in this network namespace\n");
    if seen.processes.is_empty() {
        text.push_str("  none\n");
    }
    let names = names(&seen.processes);
    for process in &seen.processes {
        text.push_str(&process_text(process, &names));
    }
    text
}

fn tried_text(tried: &Tried) -> String {
    let name = tried.which.name();
    let found = match &tried.found {
        Ok(found) => found,
        Err(why) => return format!("  {name:<14} not possible: {why}\n"),
    };
    let mut lines = vec![flow_text(&found.flow)];
    lines.extend(reason(&found.direct_why).map(|why| format!("not directly: {why}")));
    let means = found.means.iter().filter(|m| concerns(tried, m));
    lines.extend(means.map(means_text));
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let name = if index == 0 { name } else { "" };
        text.push_str(&format!("  {name:<14} {line}\n"));
    }
    text
}

/// Whether a means has to do with the path that was tried.
fn concerns(tried: &Tried, means: &Means) -> bool {
    let is_host = matches!(means.name.as_str(), "direct" | "rings");
    is_host == (tried.which == super::Which::Host)
}

fn means_text(means: &Means) -> String {
    let Means { name, usable, why } = means;
    format!(
        "{name}: {}{why}",
        if *usable { "" } else { "not to be had: " }
    )
}

fn names(processes: &[Process]) -> Names {
    let named = |process: &Process| (process.slot, name(process));
    processes.iter().map(named).collect()
}

fn name(process: &Process) -> String {
    let program = process
        .program
        .as_deref()
        .unwrap_or("of another PID namespace");
    format!("{} {program}", process.pid)
}

fn process_text(process: &Process, names: &Names) -> String {
    let mut text = format!(
        "  {} (user {}, slot {})\n",
        name(process),
        process.uid,
        process.slot
    );
    let survey = match &process.said {
        Said::All(survey) => survey,
        Said::Nothing(why) => return text + &format!("    not told: {why}\n"),
    };
    let mut line = |what: String| text.push_str(&format!("    {what}\n"));
    for means in survey.means.iter().filter(|means| !means.usable) {
        line(means_text(means));
    }
    for flow in &survey.flows {
        line(format!("{}: {}", flow_name(flow, names), flow_text(flow)));
    }
    if survey.untold > 0 {
        line(format!("{} more queue pairs", survey.untold));
    }
    for Neighbour { slot, why, .. } in survey.neighbours.iter().filter(|n| !n.direct) {
        line(format!("not directly to {}: {why}", of_slot(*slot, names)));
    }
    for Count {
        device,
        what,
        value,
    } in &survey.counts
    {
        line(format!("{device} {what} {value}"));
    }
    text
}

/// The queue pairs of a flow, their device and their peer.
fn flow_name(flow: &Flow, names: &Names) -> String {
    let Flow {
        count,
        example,
        device,
        transport,
        to,
        slot,
        ..
    } = flow;
    let which = match count {
        1 => format!("{transport} queue pair {example:#08x}"),
        _ => format!("{count} {transport} queue pairs, as {example:#08x},"),
    };
    let to = match (to.as_str(), slot) {
        ("", _) => String::new(),
        (to, None) => format!(" to {to}"),
        (to, Some(slot)) => format!(" to {to}, {}", of_slot(*slot, names)),
    };
    format!("{which} of {device}{to}")
}

fn of_slot(slot: u16, names: &Names) -> String {
    names
        .get(&slot)
        .map_or_else(|| format!("slot {slot}"), |name| format!("process {name}"))
}

/// Which way, and why.
fn flow_text(flow: &Flow) -> String {
    let because = |why: &str| reason(why).map_or_else(String::new, |why| format!(" ({why})"));
    let one_sided = match flow.direct {
        Some(true) if flow.mapped => "READ and WRITE directly (shared memory is mapped)".to_owned(),
        Some(true) => "READ and WRITE directly".to_owned(),
        Some(false) => format!("READ and WRITE by packets{}", because(&flow.direct_why)),
        None => String::new(),
    };
    let atomics = match flow.atomics {
        Some(true) => "atomics directly".to_owned(),
        Some(false) => format!("atomics by packets{}", because(&flow.atomics_why)),
        None => String::new(),
    };
    let packets = match flow.packets.as_str() {
        "" if flow.packets_why.is_empty() => "no packets so far".to_owned(),
        "" => format!("no packets{}", because(&flow.packets_why)),
        carrier => format!("packets by {carrier}{}", because(&flow.packets_why)),
    };
    [one_sided, atomics, packets]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

fn reason(why: &str) -> Option<&str> {
    (!why.is_empty()).then_some(why)
}

/// The same for programs.
pub(super) fn to_json(seen: &Seen) -> Value {
    json!({
        "tried": seen.tried.iter().map(tried_json).collect::<Vec<_>>(),
        "processes": seen.processes.iter().map(process_json).collect::<Vec<_>>(),
    })
}

fn tried_json(tried: &Tried) -> Value {
    let path = tried.which.name();
    match &tried.found {
        Err(why) => json!({"path": path, "possible": false, "why": why}),
        Ok(found) => json!({
            "path": path,
            "possible": true,
            "flow": flow_json(&found.flow),
            "not_direct": reason(&found.direct_why),
            "means": means_json(&found.means),
        }),
    }
}

fn process_json(process: &Process) -> Value {
    let (survey, why) = match &process.said {
        Said::All(survey) => (survey_json(survey), None),
        Said::Nothing(why) => (Value::Null, Some(why)),
    };
    json!({
        "pid": process.pid,
        "uid": process.uid,
        "program": process.program,
        "slot": process.slot,
        "survey": survey,
        "not_told": why,
    })
}

fn survey_json(survey: &Survey) -> Value {
    let neighbours = survey.neighbours.iter();
    let neighbours =
        neighbours.map(|n| json!({"slot": n.slot, "direct": n.direct, "why": reason(&n.why)}));
    let counts = survey.counts.iter();
    let counts = counts.map(|c| json!({"device": c.device, "what": c.what, "value": c.value}));
    json!({
        "means": means_json(&survey.means),
        "neighbours": neighbours.collect::<Vec<_>>(),
        "flows": survey.flows.iter().map(flow_json).collect::<Vec<_>>(),
        "untold": survey.untold,
        "counts": counts.collect::<Vec<_>>(),
    })
}

fn means_json(means: &[Means]) -> Vec<Value> {
    let one = |m: &Means| json!({"name": m.name, "usable": m.usable, "why": m.why});
    means.iter().map(one).collect()
}

fn flow_json(flow: &Flow) -> Value {
    json!({
        "queue_pairs": flow.count,
        "example": flow.example,
        "device": flow.device,
        "transport": flow.transport,
        "to": reason(&flow.to),
        "slot": flow.slot,
        "packets": reason(&flow.packets),
        "packets_why": reason(&flow.packets_why),
        "direct": flow.direct,
        "direct_why": reason(&flow.direct_why),
        "mapped": flow.mapped,
        "atomics_direct": flow.atomics,
        "atomics_why": reason(&flow.atomics_why),
    })
}

#[cfg(test)]
mod tests {
    use ferroce_nic::survey::Flow;

    use super::flow_text;

    #[test]
    fn a_way_is_told_with_its_reason() {
        let flow = Flow {
            packets: "Unix socket".into(),
            packets_why: "FERROCE_RINGS=off".into(),
            direct: Some(false),
            direct_why: "the copy failed".into(),
            ..Flow::default()
        };
        assert_eq!(
            flow_text(&flow),
            "READ and WRITE by packets (the copy failed), packets by Unix socket (FERROCE_RINGS=off)"
        );
        assert_eq!(flow_text(&Flow::default()), "no packets so far");
        let flow = Flow {
            direct: Some(true),
            mapped: true,
            atomics: Some(true),
            ..Flow::default()
        };
        assert_eq!(
            flow_text(&flow),
            "READ and WRITE directly (shared memory is mapped), atomics directly, no packets so far"
        );
    }
}
