//! The objects of all processes.

use std::ffi::c_int;

use ferroce_nic::survey::{self, Process, Said, Survey};

use super::answers::attribute::{DEV_INDEX, PORT_INDEX};
use super::answers::{asked_for, handle};
use super::message::{NetlinkRequest, Reply};

/// `enum rdma_nldev_attr`.
mod attribute {
    pub(super) const SUMMARY: u16 = 15;
    pub(super) const SUMMARY_ENTRY: u16 = 16;
    pub(super) const SUMMARY_ENTRY_NAME: u16 = 17;
    pub(super) const SUMMARY_ENTRY_CURR: u16 = 18;
    pub(super) const QP: u16 = 19;
    pub(super) const QP_ENTRY: u16 = 20;
    pub(super) const LQPN: u16 = 21;
    pub(super) const RQPN: u16 = 22;
    pub(super) const RQ_PSN: u16 = 23;
    pub(super) const SQ_PSN: u16 = 24;
    pub(super) const TYPE: u16 = 26;
    pub(super) const STATE: u16 = 27;
    pub(super) const PID: u16 = 28;
}
use attribute as a;

/// Kinds of objects in the order of the kernel's summary.
const KINDS: [&str; 6] = ["pd", "cq", "qp", "mr", "ctx", "srq"];
/// Types of queue pairs that have one peer: RC, UC, XRC.
const CONNECTED: [u32; 4] = [2, 3, 9, 10];

/// The processes that say what they have.
fn surveys() -> Result<Vec<(i32, Survey)>, c_int> {
    let processes = survey::processes().map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
    let said = processes
        .into_iter()
        .filter_map(|Process { pid, said, .. }| match said {
            Said::All(survey) => Some((pid, survey)),
            Said::Nothing(_) => None,
        });
    Ok(said.collect())
}

/// `RDMA_NLDEV_CMD_RES_GET`: how many objects of each kind a device has.
pub(super) fn summary(request: &NetlinkRequest<'_>, reply: &mut Reply<'_>) -> Result<(), c_int> {
    let devices = asked_for(request)?;
    let surveys = surveys()?;
    for device in devices {
        let count = |kind| {
            let all = surveys.iter().flat_map(|(_, survey)| &survey.objects);
            let of = all.filter(|o| o.device == device.name() && o.what == kind);
            of.map(|o| o.value).sum()
        };
        reply.message(|to| {
            handle(to, &device);
            to.nested(a::SUMMARY, |to| {
                for kind in KINDS {
                    to.nested(a::SUMMARY_ENTRY, |to| {
                        to.text(a::SUMMARY_ENTRY_NAME, kind);
                        to.u64(a::SUMMARY_ENTRY_CURR, count(kind));
                    });
                }
            });
        });
    }
    Ok(())
}

/// `RDMA_NLDEV_CMD_RES_QP_GET`: the queue pairs of a device, a message each.
pub(super) fn queue_pairs(
    request: &NetlinkRequest<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), c_int> {
    if !request.is_dump() || request.number(DEV_INDEX)?.is_none() {
        return Err(libc::EINVAL);
    }
    let wanted = request.number(a::LQPN)?;
    let devices = asked_for(request)?;
    let surveys = surveys()?;
    let all = surveys
        .iter()
        .flat_map(|(pid, survey)| survey.queue_pairs.iter().map(move |qp| (pid, qp)));
    for (pid, qp) in all.filter(|(_, qp)| wanted.is_none_or(|number| number == qp.number)) {
        let Some(device) = devices.iter().find(|d| d.name() == qp.device) else {
            continue;
        };
        reply.message(|to| {
            handle(to, device);
            to.nested(a::QP, |to| {
                to.nested(a::QP_ENTRY, |to| {
                    to.u32(PORT_INDEX, 1);
                    to.u32(a::LQPN, qp.number);
                    if CONNECTED.contains(&qp.kind) {
                        to.u32(a::RQPN, qp.peer);
                        to.u32(a::RQ_PSN, qp.rq_psn);
                    }
                    to.u32(a::SQ_PSN, qp.sq_psn);
                    to.u8(a::TYPE, u8::try_from(qp.kind).unwrap_or(0));
                    to.u8(a::STATE, u8::try_from(qp.state).unwrap_or(0));
                    to.u32(a::PID, pid.cast_unsigned());
                });
            });
        });
    }
    Ok(())
}
