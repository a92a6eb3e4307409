//! Rates of a port.

/// Lanes, and the codes of `active_width` (IBTA 14.2.5.6, PortInfo).
const WIDTHS: [(u32, u8); 5] = [(1, 1), (2, 16), (4, 2), (8, 4), (12, 8)];
/// Speed of a lane in units of 100 Mbit/s, and the codes of `active_speed`.
const SPEEDS: [(u32, u8); 7] = [
    (25, 1),
    (50, 2),
    (100, 4),
    (140, 16),
    (250, 32),
    (500, 64),
    (1000, 128),
];

/// Speed and lanes of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRate {
    /// Code of `active_speed`.
    pub speed_code: u8,
    /// Code of `active_width`.
    pub width_code: u8,
    /// Both together, in units of 100 Mbit/s.
    pub rate: u32,
}

/// 25 Gbit/s in one lane.
impl Default for LinkRate {
    fn default() -> Self {
        Self {
            speed_code: 32,
            width_code: 1,
            rate: 250,
        }
    }
}

impl LinkRate {
    /// 2.5 Gbit/s in one lane: what a loopback interface has without a file. Programs that rank
    /// devices by their rate (UCX, NCCL) must not choose one that no other host reaches.
    pub(super) const LOOPBACK: Self = Self {
        speed_code: 1,
        width_code: 1,
        rate: 25,
    };

    /// A rate in units of 100 Mbit/s, over that many lanes. Without `width`, over as many as the
    /// kernel says of Ethernet ports of this rate (`ib_get_eth_speed`).
    pub(super) fn of(rate: u32, width: Option<u32>) -> Result<Self, String> {
        let usual = if rate <= 250 {
            [1, 4, 2, 8, 12]
        } else {
            [4, 8, 2, 1, 12]
        };
        let found = match width {
            Some(width) => Self::over(rate, width),
            None => usual.into_iter().find_map(|width| Self::over(rate, width)),
        };
        found.ok_or_else(|| {
            let over = width.map_or(String::new(), |width| format!(" over {width} lanes"));
            format!(
                "no port has {} Gbit/s{over}: lanes are 1, 2, 4, 8 or 12, of 2.5, 5, 10, 14, 25, 50 or 100 Gbit/s",
                f64::from(rate) / 10.0
            )
        })
    }

    fn over(rate: u32, width: u32) -> Option<Self> {
        let (_, width_code) = WIDTHS.into_iter().find(|(lanes, _)| *lanes == width)?;
        let (_, speed_code) = SPEEDS.into_iter().find(|(lane, _)| lane * width == rate)?;
        Some(Self {
            speed_code,
            width_code,
            rate,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::LinkRate;

    #[test]
    fn rates_are_spread_over_lanes_as_the_kernel_does() {
        for (rate, speed_code, width_code) in [
            (25, 1, 1),
            (100, 4, 1),
            (250, 32, 1),
            (400, 4, 2),
            (500, 32, 16),
            (1000, 32, 2),
            (2000, 64, 2),
            (4000, 128, 2),
            (8000, 128, 4),
        ] {
            let due = LinkRate {
                speed_code,
                width_code,
                rate,
            };
            assert_eq!(LinkRate::of(rate, None), Ok(due), "{rate}");
        }
        assert_eq!(LinkRate::of(250, None), Ok(LinkRate::default()));
        assert_eq!(LinkRate::of(1000, Some(1)).map(|l| l.speed_code), Ok(128));
    }

    #[test]
    fn rates_that_no_port_has_are_refused() {
        for (rate, width) in [(0, None), (70, None), (250, Some(4)), (250, Some(3))] {
            assert!(LinkRate::of(rate, width).is_err(), "{rate} {width:?}");
        }
    }
}
