//! The units in the package.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::harness::{Proxy, unique, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

const UNITS: [&str; 3] = ["outboxd.service", "outboxd-once.service", "outboxd.timer"];

fn analyze(arguments: &[&str]) -> String {
    let output = Command::new("systemd-analyze")
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("systemd-analyze is not there ({error}); run: make prepare"));
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "systemd-analyze {arguments:?}: {said}");
    said
}

/// Expects the units in a folder to be sound, and to leave the relay little to do harm with, when they start this binary.
pub fn verify(units: &Path, binary: &Path) {
    let folder = env::temp_dir().join(unique("outboxd-units"));
    fs::create_dir(&folder).unwrap();
    let paths = UNITS.map(|name| {
        let unit = fs::read_to_string(units.join(name)).unwrap();
        let path = folder.join(name);
        // Where the package puts it there may be none.
        fs::write(&path, unit.replace("/usr/bin/outboxd", binary.to_str().unwrap())).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let said = analyze(&["verify", "--man=no", &paths[0], &paths[1], &paths[2]]);
    assert!(!said.contains("outboxd"), "{said}");
    for service in &paths[..2] {
        // In tenths.
        let said = analyze(&["security", "--offline=true", "--threshold=13", service]);
        assert!(said.contains("exposure level"), "{said}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_units_are_sound_and_leave_the_relay_little_to_do_harm_with() {
    verify(Path::new("packaging"), Path::new(OUTBOXD));
}

/// What systemd starts must be a command line that the binary knows.
#[test]
fn the_units_call_commands_that_there_are() {
    for name in &UNITS[..2] {
        let unit = fs::read_to_string(format!("packaging/{name}")).unwrap();
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/outboxd ")).unwrap();
        let line = line.replace("${CREDENTIALS_DIRECTORY}", "/nonexistent");
        let output = Command::new(OUTBOXD).args(line.split(' ')).env_clear().output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(78), "{name}: {said}");
        assert!(said.contains("/nonexistent/outboxd.toml"), "{name}: {said}");
    }
}

/// At the largest settings, and while one connection is ended and another one opened.
#[test]
fn the_relay_needs_fewer_threads_than_its_unit_allows() {
    let mut world = World::new();
    let (queue, proxy) =
        (world.queue(), Proxy::to(url::Url::parse(&world.amqp_url).unwrap().port().unwrap()));
    world.amqp_url = format!("amqp://guest:guest@127.0.0.1:{}/%2F", proxy.port());
    let unit = fs::read_to_string("packaging/outboxd.service").unwrap();
    let allowed = unit.lines().find_map(|it| it.strip_prefix("TasksMax=")).unwrap().parse::<usize>().unwrap();
    let file = env::temp_dir().join(unique("outboxd-threads"));
    let largest = ["--workers", "32", "--listen", "--retention", "1d", "--metrics-addr", "127.0.0.1:0"];
    let quick = ["--interval", "50ms", "--batch-rows", "50", "--metrics-file", file.to_str().unwrap()];
    let relay = world.start(&[&largest[..], &quick].concat());
    let threads = || fs::read_dir(format!("/proc/{}/task", relay.id())).unwrap().count();
    let (mut most, mut written, mut seen) = (0, 0, 0);
    for _ in 0..3 {
        world.insert_many(&queue, 500);
        written += 500;
        wait_until(&format!("{written} are published:\n{relay}"), DEADLINE, || {
            most = most.max(threads());
            let published = world.count("PUBLISHED");
            if published > seen && published < written {
                seen = published;
                proxy.reset();
            }
            (published == written).then_some(())
        });
    }
    let _ = fs::remove_file(&file);
    assert!(most > 32, "{most}");
    // A margin for what takes longer to end on a slower machine.
    assert!(most * 3 / 2 <= allowed, "{most} of {allowed}");
}
