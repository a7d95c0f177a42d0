//! Where a server's programs are: on this machine, or in a folder with the `/usr` of another Debian release.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Runs its arguments with the root's `/usr` in place of the machine's. Only these processes see it, under this one's
/// id, and the mount is gone with the last of them. All else stays the machine's: users, `/proc`, `/tmp`, the network.
const WITH_OTHER_USR: &str = r#"mount --bind "$0/usr" /usr && exec "$@""#;

/// A tree with `usr` in it, or the machine itself.
#[derive(Clone)]
pub struct Root(Option<PathBuf>);

impl Root {
    /// The root that this environment variable names; without it, the machine. Only the superuser can run what is in
    /// another root.
    pub fn given_by(variable: &str) -> Root {
        Root(env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from))
    }

    pub fn machine() -> Root {
        Root(None)
    }

    /// A command that sees the variable PATH and no other.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match &self.0 {
            Some(root) => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", WITH_OTHER_USR]).arg(root).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.env_clear().envs(env::var_os("PATH").map(|path| ("PATH", path)));
        command
    }

    /// The folder of a server's programs: `parent/<prefix><version><suffix>` with the highest version that holds
    /// `program`, as the root's own programs see it. On the machine it may also be one of PATH.
    pub fn find(&self, parent: &str, prefix: &str, suffix: &str, program: &str) -> Option<PathBuf> {
        self.newest(parent, prefix, suffix, program).or_else(|| match self.0 {
            Some(_) => None,
            None => Some(find_in_path(program)?.canonicalize().ok()?.parent()?.to_owned()),
        })
    }

    /// The same, without PATH.
    pub fn newest(&self, parent: &str, prefix: &str, suffix: &str, program: &str) -> Option<PathBuf> {
        let inside = Path::new(parent);
        let outside = match &self.0 {
            Some(root) => root.join(inside.strip_prefix("/").unwrap_or(inside)),
            None => inside.to_owned(),
        };
        let versions = fs::read_dir(outside).ok()?.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version: Vec<u32> =
                name.strip_prefix(prefix)?.split('.').map_while(|part| part.parse().ok()).collect();
            let found = entry.path().join(suffix).join(program).is_file();
            found.then(|| (version, inside.join(name).join(suffix)))
        });
        versions.max().map(|(_, folder)| folder)
    }
}

/// A program in one of the folders of PATH.
pub fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
