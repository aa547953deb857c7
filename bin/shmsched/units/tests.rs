//! Each form that is read, and each that is not.

use super::*;

#[test]
fn limits() {
    let of = |text| limit_of(text, || 6);
    assert_eq!(of("unlimited"), Ok(Limit(None)));
    assert_eq!(of("8"), Ok(Limit(Some(8))));
    assert_eq!(of("0"), Ok(Limit(Some(0))));
    assert_eq!(of("2147483647"), Ok(Limit(Some(2147483647))));
    assert_eq!(of("50%"), Ok(Limit(Some(3))));
    assert_eq!(of("25%"), Ok(Limit(Some(2))), "1.5 is rounded up");
    assert_eq!(of("1%"), Ok(Limit(Some(1))), "at least one");
    assert_eq!(of("0%"), Ok(Limit(Some(0))));
    assert_eq!(of("200%"), Ok(Limit(Some(12))));
    for text in [
        "",
        "-1",
        "+1",
        "1.5",
        "nan",
        "inf",
        "Unlimited",
        "2147483648",
        "99999999999999999999",
        "%",
        "5.5%",
        "-5%",
        "1 ",
    ] {
        assert!(of(text).is_err(), "{text}");
    }
    assert!(limit_of("99999999999999999999%", || 1 << 20).is_err());
}

#[test]
fn percentages() {
    for (text, hundredths) in [
        ("0", 0),
        ("40", 4_000),
        ("40%", 4_000),
        ("2.5", 250),
        ("0.01", 1),
        ("0.019", 1),
        ("100", 10_000),
        ("100.00", 10_000),
    ] {
        assert_eq!(parse_percent(text), Ok(hundredths), "{text}");
    }
    for text in [
        "",
        "%",
        "-1",
        "+1",
        "100.001",
        "101",
        "1e1",
        "0,5",
        "5 %",
        "nan",
        "655360000",
        "99999999999999999999999999999999999999999",
    ] {
        assert!(parse_percent(text).is_err(), "{text}");
    }
}

#[test]
fn addresses() {
    for (text, address) in [
        ("9300", "127.0.0.1:9300"),
        (":9300", "127.0.0.1:9300"),
        ("0", "127.0.0.1:0"),
        ("0.0.0.0:80", "0.0.0.0:80"),
        ("[::1]:65535", "[::1]:65535"),
        ("localhost:1", "localhost:1"),
    ] {
        assert_eq!(parse_address(text).as_deref(), Ok(address));
    }
    for text in [
        "",
        ":",
        "x",
        "127.0.0.1",
        "::1",
        "::1:80",
        "[::1]",
        "h:",
        "h:+1",
        "h:65536",
        "h:-1",
        "a b:1",
    ] {
        assert!(parse_address(text).is_err(), "{text}");
    }
}

#[test]
fn amounts_and_targets() {
    assert_eq!(parse_amount("3"), Ok(3));
    assert!(parse_amount("0").is_err());
    assert_eq!(
        parse_target("low=2"),
        Ok(Target {
            priority: Priority::Low,
            slots: 2
        })
    );
    assert_eq!(
        parse_target("-3=0"),
        Ok(Target {
            priority: Priority::Lowest,
            slots: 0
        })
    );
    for text in [
        "low", "low=", "=2", "urgent=2", "low=-1", "low=2=3", "low=50%",
    ] {
        assert!(parse_target(text).is_err(), "{text}");
    }
}

#[test]
fn durations() {
    let good = [
        ("100ms", 100_000_000),
        ("2s", 2_000_000_000),
        ("1.5s", 1_500_000_000),
        ("0.5ms", 500_000),
        ("0s", 0),
        ("7ns", 7),
        ("3us", 3_000),
        ("2m", 120_000_000_000),
        ("1.5h", 5_400_000_000_000),
        ("1d", 86_400_000_000_000),
        ("0.10s", 100_000_000),
        ("1.50000000000000000000s", 1_500_000_000),
    ];
    for (text, nanoseconds) in good {
        assert_eq!(
            parse_duration(text),
            Ok(Duration::from_nanos(nanoseconds)),
            "{text}"
        );
    }
    // case 57: a comma is no dot
    let bad = [
        "",
        "5",
        "s",
        "0,5s",
        "1.s",
        ".5s",
        "-1ms",
        "+1s",
        "1 s",
        "1s ",
        "nan",
        "inf",
        "infs",
        "1e3s",
        "1.2.3s",
        "0.5ns",
        "1S",
        "1sec",
        "99999999999999999999999999999999999999999s",
        "340282366920938463463374607431768211455d",
        "\u{0661}s",
    ];
    for text in bad {
        assert!(parse_duration(text).is_err(), "{text}");
    }
    assert!(parse_duration("5").unwrap_err().contains("unit"));
    assert!(parse_pause("9ms").is_err());
}

#[test]
fn intervals() {
    let good = [
        ("0.5ms", Duration::from_micros(500)),
        ("1ns", Duration::from_nanos(1)),
        ("2d", Duration::from_secs(172_800)),
        ("36500d", Settings::LONGEST_INTERVAL),
        // What is finer than a nanosecond is never less than was asked for.
        ("0.5ns", Duration::from_nanos(1)),
        ("0.0000000001s", Duration::from_nanos(1)),
        (
            "1.0000000000000000000000000000000000001s",
            Duration::new(1, 1),
        ),
        (
            "0.0000000000000000000000000000000000001d",
            Duration::from_nanos(1),
        ),
        // Absurdly long ones are as long as can be.
        ("36501d", Settings::LONGEST_INTERVAL),
        (
            "340282366920938463463374607431768211455d",
            Settings::LONGEST_INTERVAL,
        ),
        (
            "340282366920938463463374607431768211455.5ns",
            Settings::LONGEST_INTERVAL,
        ),
        (
            "99999999999999999999999999999999999999999s",
            Settings::LONGEST_INTERVAL,
        ),
    ];
    for (text, interval) in good {
        assert_eq!(parse_interval(text), Ok(interval), "{text}");
    }
    // case 17
    let bad = [
        "", "0", "0ms", "0.000s", "-1ms", "+1ms", "5", "1.5", "nan", "inf", "infs", "1e3s", "0,5s",
        ".5s", "1.s", "ms", "1 ms", "1ms ", "1.2.3s",
    ];
    for text in bad {
        let why = parse_interval(text).expect_err(text);
        assert!(!why.is_empty() && !why.contains('\n'));
    }
}

#[test]
fn counts() {
    assert_eq!(parse_count("0"), Ok(0));
    assert_eq!(parse_count("2147483647"), Ok(2147483647));
    assert_eq!(parse_waiting("65536"), Ok(65_536));
    for text in [
        "",
        "-1",
        "+1",
        "1.5",
        "nan",
        "inf",
        "0x3",
        "2147483648",
        "99999999999999999999",
    ] {
        assert!(parse_count(text).is_err(), "{text}");
        assert!(parse_waiting(text).is_err(), "{text}");
    }
    // It names the limit that holds there.
    assert!(parse_waiting("65537").unwrap_err().contains("65536"));
    assert!(
        parse_count("2147483648")
            .unwrap_err()
            .contains("2147483647")
    );
}

#[test]
fn rates() {
    let good = [
        ("1", 1),
        ("500", 500),
        ("500/s", 500),
        ("2147483647", 2147483647),
        ("10MB/s", 10_000_000),
        ("1MiB/s", 1_048_576),
        ("1.5MB/s", 1_500_000),
        ("0.5KiB/s", 512),
        ("1kB/s", 1_000),
        ("7B/s", 7),
        ("1GiB/s", 1 << 30),
    ];
    for (text, rate) in good {
        assert_eq!(parse_rate(text), Ok(rate), "{text}");
    }
    // case 17
    let bad = [
        "",
        "0",
        "-5",
        "1.5",
        "1.5/s",
        "nan",
        "inf",
        "2147483648",
        "0MB/s",
        "10MB",
        "10mb/s",
        "10MB/m",
        "0.3KiB/s",
        "0.0001MB/m",
        "0.0000001MB/s",
        "0.4/s",
        "0/s",
        "0.00B/s",
        "0.0000000000000000000000000000000000001GiB/s",
        "99999999999999999999999999999999999999999MB/s",
        "2GiB/s",
        "/s",
        "1,5MB/s",
    ];
    for text in bad {
        assert!(parse_rate(text).is_err(), "{text}");
    }
}

#[test]
fn modes() {
    assert_eq!(parse_mode("660"), Ok(0o660));
    assert_eq!(parse_mode("0600"), Ok(0o600));
    assert_eq!(parse_mode("0"), Ok(0));
    for text in [
        "",
        "888",
        "1777",
        "0o600",
        "-1",
        "+600",
        "rw-rw----",
        "00000",
    ] {
        assert!(parse_mode(text).is_err(), "{text}");
    }
}
