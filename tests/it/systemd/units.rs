//! The units in the package.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::harness::unique;
use crate::world::OUTBOXD;

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
