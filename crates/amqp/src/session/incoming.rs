//! Methods and messages from the server.

use super::channel::Delivered;
use super::content::{Assembly, Progress};
use super::{FLOW_STOPPED, Session, blocked_text, wanted};
use crate::command::ChannelKey;
use crate::confirms::Violation;
use crate::error::{ChannelError, CloseReason, ClosedBy};
use crate::frame::{Fatal, Frame, FrameKind};
use crate::method::{self, Content, Incoming};
use crate::request;

use tokio::time::Instant;

impl Session {
    pub(super) fn on_connection_method(&mut self, method: Incoming, now: Instant) -> Result<(), Fatal> {
        match method {
            Incoming::ConnectionClose { code, text } => {
                self.finish(CloseReason { code, text, by: ClosedBy::Server }, now);
                self.output.push(request::bare_method(0, method::CONNECTION_CLOSE_OK));
            }
            Incoming::ConnectionCloseOk => self.finish(wanted("closed as asked"), now),
            Incoming::Blocked { reason } => {
                self.refuse_queued(&blocked_text(&reason), |_| true);
                self.blocked.send_replace(Some(reason));
            }
            Incoming::Unblocked => {
                self.blocked.send_replace(None);
            }
            other => return Err(Fatal::unexpected(format!("method {} on channel 0", other.id()))),
        }
        Ok(())
    }

    pub(super) fn on_method(&mut self, number: u16, method: Incoming) -> Result<(), Fatal> {
        let Some(channel) = self.channels.get_mut(&number) else {
            return Err(unknown_channel(number));
        };
        if channel.closing {
            match method {
                Incoming::ChannelCloseOk => drop(self.channels.remove(&number)),
                // Both sides closed at once: each answers the other.
                Incoming::ChannelClose { .. } => {
                    self.output.push(request::bare_method(number, method::CHANNEL_CLOSE_OK));
                }
                _ => {}
            }
            return Ok(());
        }
        if channel.content.is_some() {
            let text = format!("method {} in the middle of a message", method.id());
            return Err(Fatal::unexpected(text));
        }
        match method {
            Incoming::Ack { tag, multiple } => {
                let result = channel.confirm(tag, multiple, true, &mut self.deadlines);
                self.judge(number, result);
            }
            Incoming::Nack { tag, multiple } => {
                let result = channel.confirm(tag, multiple, false, &mut self.deadlines);
                self.judge(number, result);
            }
            Incoming::Return { .. } | Incoming::Deliver(_) | Incoming::GetOk(_) => {
                channel.content = Some(Assembly::new(method));
            }
            Incoming::ChannelClose { code, text } => {
                self.end_channel(number, &ChannelError::Closed { code, text });
                self.channels.remove(&number);
                self.output.push(request::bare_method(number, method::CHANNEL_CLOSE_OK));
            }
            Incoming::Flow { active } => {
                channel.flowing = active;
                let ChannelKey { serial, .. } = channel.key;
                if !active {
                    self.refuse_queued(FLOW_STOPPED, |queued| queued.key.serial == serial);
                }
                let flow_ok = request::fixed_method(number, method::CHANNEL_FLOW_OK, &[u8::from(active)]);
                self.output.push(flow_ok);
            }
            Incoming::Cancel { consumer_tag, no_wait } => {
                channel.cancelled();
                if !no_wait {
                    self.output.push(request::cancel_ok(number, &consumer_tag));
                }
            }
            answer => channel.answer(answer, None)?,
        }
        Ok(())
    }

    pub(super) fn on_content(&mut self, number: u16, frame: &Frame) -> Result<(), Fatal> {
        let Some(channel) = self.channels.get_mut(&number) else {
            return Err(unknown_channel(number));
        };
        if channel.closing {
            return Ok(());
        }
        let Some(assembly) = channel.content.take() else {
            return Err(Fatal::unexpected("a part of a message that nobody announced"));
        };
        let progress = match frame.kind {
            FrameKind::Header => assembly.header(&frame.payload)?,
            _ => assembly.body(&frame.payload)?,
        };
        match progress {
            Progress::Incomplete(assembly) => {
                channel.content = Some(assembly);
                Ok(())
            }
            Progress::Complete(method, content) => self.on_message(number, method, content),
            Progress::TooLarge(size) => {
                self.give_up(number, &format!("a message of {size} bytes is more than this side takes"));
                Ok(())
            }
        }
    }

    fn on_message(&mut self, number: u16, method: Incoming, content: Content) -> Result<(), Fatal> {
        let Some(channel) = self.channels.get_mut(&number) else {
            return Err(unknown_channel(number));
        };
        match method {
            Incoming::Return { code, text } => {
                let result = channel.returned(code, &text, &content);
                self.judge(number, result);
            }
            Incoming::Deliver(origin) => match channel.deliver(origin, content)? {
                Delivered::Taken => {}
                Delivered::Unwanted(tag) => {
                    let frame = request::give_back(number, method::BASIC_NACK, tag, true);
                    self.output.push(channel.give_back(tag..=tag, &frame));
                }
                Delivered::Excess => self.give_up(number, "the broker sent more than the prefetch allows"),
                Delivered::Disordered => self.give_up(number, DISORDERED),
            },
            Incoming::GetOk(origin) if !channel.unsettled.deliver(origin.tag.get()) => {
                self.give_up(number, DISORDERED);
            }
            fetched => channel.answer(fetched, Some(content))?,
        }
        Ok(())
    }

    fn judge(&mut self, number: u16, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.give_up(number, &violation.to_string());
        }
    }
}

const DISORDERED: &str = "the broker gave a delivery a tag that is not above the last one";

fn unknown_channel(number: u16) -> Fatal {
    Fatal { code: 504, text: format!("channel {number} is not open") }
}
