//! Options of identifiers (`rdma_set_option(3)`).

use ferroce_proto::verbs::QpType;

use super::IdOption;
use super::ports::PortKey;
use super::service::Work;
use super::state::{PortHold, Progress};
use crate::Error;

impl Work<'_> {
    pub(super) fn set_option(&mut self, key: u64, option: IdOption) -> Result<(), Error> {
        let id = self.state.id_mut(key)?;
        match option {
            IdOption::Tos(tos) => id.options.tos = tos,
            IdOption::ReuseAddr(reuse) => {
                if !reuse || id.progress == Progress::Listening {
                    id.expect("switching RDMA_OPTION_ID_REUSEADDR", &[Progress::Idle])?;
                }
                id.options.reuse_addr = reuse;
            }
            IdOption::AfOnly(af_only) => {
                id.expect(
                    "switching RDMA_OPTION_ID_AFONLY",
                    &[Progress::Idle, Progress::Bound],
                )?;
                id.options.af_only = af_only;
            }
            IdOption::AckTimeout(code) => {
                if !matches!(id.qp_type, QpType::Rc | QpType::XrcSend) {
                    return Err(Error::invalid(format!(
                        "a queue pair of type {} has no ACK timeout to set",
                        id.qp_type
                    )));
                }
                if code > 31 {
                    return Err(Error::invalid(format!(
                        "ACK timeout code {code}, the largest is 31"
                    )));
                }
                id.options.ack_timeout = Some(code);
            }
        }
        let (options, ps) = (id.options, id.ps);
        if let Some(PortHold::Claimed(port)) = id.port {
            self.state
                .ports
                .update(PortKey { ps, port }, key, |holder| {
                    holder.reuse = options.reuse_addr;
                    holder.af_only = options.af_only;
                });
        }
        Ok(())
    }
}
