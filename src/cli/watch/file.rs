//! The metrics file: whoever reads it sees either the last text or this one, whole.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Most bytes that are read of the last text; far more than it has.
const READ_MAX: u64 = 256 * 1024;

/// Writes `text` beside the file and renames it into its place. Readers may be other users, so it is readable for
/// everyone; it holds no secret. A device or a pipe of that name is left alone: `/dev/stdout` is not ours to replace.
///
/// # Errors
/// Names the file and the reason.
pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Not the collector's suffix, so that it does not read a half; and not another process's name.
    let beside = path.with_file_name(format!("{name}.{}", std::process::id()));
    let written = may_replace(path).and_then(|()| {
        let written = write_new(&beside, text).and_then(|()| fs::rename(&beside, path));
        written.inspect_err(|_| drop(fs::remove_file(&beside)))
    });
    written.map_err(|error| {
        format!("writing metrics_file {} failed: {error}", path.display().to_string().escape_debug())
    })
}

/// Whether what is there, if anything is, is a file.
fn may_replace(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(io::Error::other("what is there is not a file")),
        _ => Ok(()),
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let open = || OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = match open() {
        // Left behind by a process of the same number that was killed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path).and_then(|()| open())
        }
        opened => opened,
    }?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(0o644))
}

/// The value of a sample without labels in the text that is there, if there is one.
pub(super) fn last_value(path: &Path, name: &str) -> Option<f64> {
    may_replace(path).ok()?;
    let mut text = String::new();
    fs::File::open(path).ok()?.take(READ_MAX).read_to_string(&mut text).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_is_left_beside_it() {
        let folder = std::env::temp_dir().join(format!("outboxd-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("outboxd.prom");
        write(&path, "a 1\n").unwrap();
        let before = fs::File::open(&path).unwrap();
        // As a killed process leaves it.
        fs::write(folder.join(format!("outboxd.prom.{}", std::process::id())), "half").unwrap();
        write(&path, "a 2\nb{c=\"d\"} 3\nbc 4\n").unwrap();
        let mut old = String::new();
        (&before).read_to_string(&mut old).unwrap();
        assert_eq!(old, "a 1\n", "who has it open reads on in the old one");
        assert_eq!((last_value(&path, "a"), last_value(&path, "b")), (Some(2.0), None));
        assert_eq!((last_value(&path, "bc"), last_value(&folder, "a")), (Some(4.0), None));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        let nowhere = folder.join("none").join("x.prom");
        let error = write(&nowhere, "").unwrap_err();
        assert!(error.contains("none/x.prom failed: No such file"), "{error}");
        let socket = folder.join("socket");
        let _kept = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = write(&socket, "").unwrap_err();
        assert!(error.ends_with("failed: what is there is not a file"), "{error}");
        assert_eq!(
            (fs::metadata(&socket).unwrap().is_file(), fs::read_dir(&folder).unwrap().count()),
            (false, 2)
        );
        fs::remove_dir_all(&folder).unwrap();
    }
}
