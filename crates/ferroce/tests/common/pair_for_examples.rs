// Included by the examples of the documentation: two queue pairs of this process, connected.
#[allow(dead_code)]
struct Pair {
    context: ferroce::device::Context,
    domain: ferroce::mem::ProtectionDomain,
    completions: ferroce::cq::CompletionQueue,
    near: ferroce::qp::QueuePair<ferroce::transport::Rc>,
    far: ferroce::qp::QueuePair<ferroce::transport::Rc>,
}

fn pair() -> Result<Pair, Box<dyn std::error::Error>> {
    use ferroce::device::PortState;
    for device in ferroce::device::devices()? {
        let context = device.open()?;
        let gid = context.gids(1)?.into_iter().find(|entry| entry.gid.ipv4().is_some());
        let Some(gid) = gid.filter(|_| context.port(1).is_ok_and(|p| p.state == PortState::Active))
        else {
            continue;
        };
        let domain = ferroce::mem::ProtectionDomain::new(&context)?;
        let completions = ferroce::cq::CompletionQueue::new(&context, 64)?;
        let build = || ferroce::qp::QueuePairBuilder::new(&domain, &completions).build();
        let (near, far) = (build()?, build()?);
        let [near_end, far_end] =
            [&near, &far].map(|end| end.init(1, &gid, ferroce::mem::RemoteAccess::ALL));
        let link = ferroce::qp::LinkParameters::default();
        near.connect(&far_end?, &link)?;
        far.connect(&near_end?, &link)?;
        return Ok(Pair { context, domain, completions, near, far });
    }
    Err("no device with a port that is up and an IPv4 address".into())
}
