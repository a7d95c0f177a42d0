//! Whether a queue is there, for who looks before anything is sent. Declares nothing.

use crate::error::Result;

use super::dispatch::Loss;
use super::session::{Session, lost};
use super::wire::Ending;

impl Session {
    /// Whether there is a queue of this name; the broker's reason when there is none. One that is another connection's
    /// alone counts.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn check_queue(&mut self, queue: &str) -> Result<std::result::Result<(), String>> {
        // On a channel of its own: the answer "no" closes the channel it is asked on.
        let asked = self.request(|connection| {
            let channel = connection.open_channel(None)?;
            let answer = channel.queue_declare_passive(queue).map(|_| ());
            let closed = channel.close();
            answer.and(closed)
        });
        match asked.as_ref().map_err(Ending::of) {
            // 405 is somebody's exclusive one; and who may not ask (403) learns nothing.
            Ok(()) | Err(Ending::Channel { code: 403 | 405, .. }) => Ok(Ok(())),
            Err(Ending::Channel { code, text }) => Ok(Err(format!("{text} ({code})"))),
            Err(Ending::Connection(reason)) => {
                self.lose(Loss::Ended(reason.clone()));
                Err(lost(&reason))
            }
        }
    }
}
