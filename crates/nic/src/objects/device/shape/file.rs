//! Reading the file.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{LinkRate, NAME_MAX, PciAddress, Shape, Shapes};

/// Devices of a file, together.
const MOST: u32 = 64;

/// Reads the file's text; an error says which line makes no sense, and why.
pub(super) fn parse(text: &str) -> Result<Shapes, String> {
    let at = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
    let table = DeTable::parse(text).map_err(|e| {
        let line = e.span().map_or(1, |span| at(span.start));
        format!("line {line}: {}", e.message())
    })?;
    let mut shapes = Shapes::default();
    for (key, value) in table.get_ref() {
        let line = at(value.span().start);
        let read = match (key.get_ref().as_ref(), value.get_ref()) {
            ("others", DeValue::Boolean(others)) => {
                shapes.others = *others;
                Ok(())
            }
            ("device", DeValue::Array(devices)) => devices.iter().try_for_each(|device| {
                let line = at(device.span().start);
                add(&mut shapes, device).map_err(|why| format!("line {line}: {why}"))
            }),
            (key, _) => Err(format!(
                "line {line}: {key:?} is neither `others = true`, `others = false` nor [[device]]"
            )),
        };
        read?;
    }
    Ok(shapes)
}

/// A table's values.
#[derive(Default)]
struct ShapeRow {
    interface: Option<String>,
    name: Option<String>,
    count: Option<u32>,
    rate: Option<u32>,
    width: Option<u32>,
    numa_node: Option<i32>,
    pci: Option<PciAddress>,
}

/// Adds the devices of one table.
fn add(shapes: &mut Shapes, device: &Spanned<DeValue<'_>>) -> Result<(), String> {
    let DeValue::Table(table) = device.get_ref() else {
        return Err("a device is a table".to_owned());
    };
    let mut row = ShapeRow::default();
    for (key, value) in table {
        let key = key.get_ref().as_ref();
        row.set(key, value.get_ref())
            .map_err(|why| format!("{key}: {why}"))?;
    }
    let interface = row.interface.ok_or("a device needs its `interface`")?;
    let link = match (row.rate, row.width) {
        (None, None) => None,
        (rate, width) => Some(LinkRate::of(
            rate.unwrap_or_else(|| LinkRate::default().rate),
            width,
        )?),
    };
    for nth in 0..row.count.unwrap_or(1) {
        let name = row.name.as_deref().map(|name| counted(name, nth));
        if let Some(name) = &name {
            check_name(name, &shapes.devices)?;
        }
        let pci = row.pci.map(|pci| behind(pci, nth)).transpose()?;
        if let Some(pci) = pci.filter(|p| shapes.devices.iter().any(|d| d.pci == Some(*p))) {
            return Err(format!("two devices have the address {pci}"));
        }
        let before = shapes.devices.iter().filter(|d| d.interface == interface);
        let ordinal = u32::try_from(before.count()).expect("invariant: at most MOST");
        shapes.devices.push(Shape {
            interface: interface.clone(),
            name,
            ordinal,
            link,
            numa_node: row.numa_node,
            pci,
        });
    }
    if shapes.devices.len() > MOST as usize {
        return Err(format!("more than {MOST} devices"));
    }
    Ok(())
}

impl ShapeRow {
    fn set(&mut self, key: &str, value: &DeValue<'_>) -> Result<(), String> {
        match key {
            "interface" => self.interface = Some(text(value)?.to_owned()),
            "name" => self.name = Some(text(value)?.to_owned()),
            "count" => self.count = Some(number(value, 1..=MOST.into())?),
            "rate" => self.rate = Some(rate(value)?),
            "width" => self.width = Some(number(value, 1..=12)?),
            "numa_node" => self.numa_node = Some(number(value, -1..=1023)?),
            "pci" => self.pci = Some(address(text(value)?)?),
            _ => {
                return Err(
                    "a device has interface, name, count, rate, width, numa_node and pci"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }
}

fn text<'a>(value: &'a DeValue<'_>) -> Result<&'a str, String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    text.ok_or_else(|| "it wants a text in quotation marks".to_owned())
}

/// An integer of a range.
fn number<T: TryFrom<i64>>(
    value: &DeValue<'_>,
    range: std::ops::RangeInclusive<i64>,
) -> Result<T, String> {
    let integer = value
        .as_integer()
        .and_then(|i| i64::from_str_radix(i.as_str(), i.radix()).ok());
    let number = integer.filter(|number| range.contains(number));
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| {
            format!(
                "it wants a number from {} to {}",
                range.start(),
                range.end()
            )
        })
}

/// Gbit/s, in units of 100 Mbit/s.
fn rate(value: &DeValue<'_>) -> Result<u32, String> {
    match value {
        DeValue::Float(float) if float.as_str() == "2.5" => Ok(25),
        value => number::<u32>(value, 1..=10_000).map(|rate| rate * 10),
    }
}

/// `DDDD:BB:DD.F`, hexadecimal.
fn address(text: &str) -> Result<PciAddress, String> {
    let wrong = || format!("{text:?} is no address of PCI such as \"0000:fe:00.0\"");
    let (domain, rest) = text.split_once(':').ok_or_else(wrong)?;
    let (bus, rest) = rest.split_once(':').ok_or_else(wrong)?;
    let (device, function) = rest.split_once('.').ok_or_else(wrong)?;
    let part = |part: &str, digits: usize, most: u16| {
        let all = part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit());
        let value = u16::from_str_radix(part, 16).ok().filter(|v| *v <= most);
        value.filter(|_| all).ok_or_else(wrong)
    };
    let byte = |part: u16| u8::try_from(part).expect("invariant: checked against its most");
    Ok(PciAddress {
        domain: part(domain, 4, u16::MAX)?,
        bus: byte(part(bus, 2, 0xff)?),
        device: byte(part(device, 2, 31)?),
        function: byte(part(function, 1, 7)?),
    })
}

/// The address of the `nth` device of a table: each is a card of its own, on the next bus.
fn behind(pci: PciAddress, nth: u32) -> Result<PciAddress, String> {
    let bus = u32::from(pci.bus) + nth;
    let bus = u8::try_from(bus).map_err(|_| format!("no bus is left for {nth} behind {pci}"))?;
    Ok(PciAddress { bus, ..pci })
}

/// The name of the `nth` device of a table: the number at the name's end counts up.
fn counted(name: &str, nth: u32) -> String {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match name[stem.len()..].parse::<u32>() {
        Ok(first) => format!("{stem}{}", first.saturating_add(nth)),
        Err(_) if nth == 0 => name.to_owned(),
        Err(_) => format!("{name}_{nth}"),
    }
}

/// Refuses a name that is no name of a folder, or is there already.
fn check_name(name: &str, before: &[Shape]) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.len() > NAME_MAX || name.starts_with('.') || !name.chars().all(plain) {
        return Err(format!(
            "name: {name:?} wants at most {NAME_MAX} letters, digits, `-`, `_` and `.`, no `.` first"
        ));
    }
    if before
        .iter()
        .any(|shape| shape.name.as_deref() == Some(name))
    {
        return Err(format!("name: two devices are called {name:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Shapes {
        parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn a_table_says_all_of_its_devices() {
        let shapes = read(
            "others = false\n[[device]]\ninterface = \"eth0\"\nname = \"mlx5_0\"\ncount = 2\nrate = 100\n\
             numa_node = 1\npci = \"0000:3b:00.1\"\n[[device]]\ninterface = \"lo\"\n",
        );
        assert!(!shapes.has_others());
        let [first, second, third] = &shapes.devices[..] else {
            panic!("{shapes:?}");
        };
        assert_eq!(first.name.as_deref(), Some("mlx5_0"));
        assert_eq!(second.name.as_deref(), Some("mlx5_1"));
        assert_eq!((first.ordinal, second.ordinal), (0, 1));
        assert_eq!(first.link.map(|link| link.rate), Some(1000));
        assert_eq!(first.numa_node, Some(1));
        let address = |shape: &Shape| shape.pci.map(|pci| pci.to_string());
        assert_eq!(address(first).as_deref(), Some("0000:3b:00.1"));
        assert_eq!(address(second).as_deref(), Some("0000:3c:00.1"));
        assert_eq!((&third.name, third.link, third.pci), (&None, None, None));
    }

    #[test]
    fn a_file_without_tables_changes_nothing() {
        assert_eq!(read(""), Shapes::default());
        assert!(Shapes::default().has_others());
    }

    #[test]
    fn names_count_up_by_the_number_at_their_end() {
        assert_eq!(counted("mlx5_9", 1), "mlx5_10");
        assert_eq!(counted("nic", 0), "nic");
        assert_eq!(counted("nic", 2), "nic_2");
        assert_eq!(counted("eth0.100", 1), "eth0.101");
    }

    #[test]
    fn what_makes_no_sense_names_its_line() {
        let device = "[[device]]\ninterface = \"eth0\"\n";
        for (text, line) in [
            ("x = 1", 1),
            ("others = 1", 1),
            ("\n[[device]", 2),
            ("device = 1", 1),
            ("device = [1]", 1),
            ("[[device]]\nname = \"a\"", 1),
            ("\n[[device]]\ninterface = \"\"", 2),
        ] {
            let why = parse(text).expect_err(text);
            assert!(why.starts_with(&format!("line {line}: ")), "{text}: {why}");
        }
        for wrong in [
            "speed = 100",
            "name = \"a/b\"",
            "name = \"..\"",
            "name = 5",
            "name = \"a\"\n[[device]]\ninterface=\"lo\"\nname = \"a\"",
            "count = 0",
            "count = 65",
            "count = \"2\"",
            "rate = 33",
            "rate = 2.6",
            "rate = -25",
            "width = 3",
            "rate = 25\nwidth = 4",
            "numa_node = -2",
            "pci = \"fe:00.0\"",
            "pci = \"0000:fe:20.0\"",
            "pci = \"0000:fe:00.8\"",
            "pci = \"0000:+e:00.0\"",
            "pci = \"0000:fe:00.0\"\ncount = 3",
            "pci = \"0000:01:00.0\"\n[[device]]\ninterface=\"lo\"\npci = \"0000:01:00.0\"",
        ] {
            let text = format!("{device}{wrong}\n");
            assert!(parse(&text).is_err(), "{text}");
        }
    }
}
