//! Sends a request to a server, over any transport.

use std::sync::Arc;

use super::connection::{Connection, Link, rpc_id};
use super::drive;
use super::exchange::Exchange;
use super::inbox::{Inbox, Item};
use super::terms::Terms;
use crate::protocol::{Frame, Message, Method, Raw, Request};

impl Connection {
    /// Sends a request under an id from [`Connection::next_id`].
    pub(crate) fn open(self: &Arc<Self>, id: u64, method: &Method, params: Option<&Raw>, terms: &Terms) -> Exchange {
        let inbox = Arc::new(Inbox::of(terms.account.as_ref()));
        // Neither kind of handshake request is ever cancelled (2025-11-25, cancellation).
        let over = matches!(method, Method::Initialize | Method::Discover);
        let mut exchange = Exchange { id, connection: self.clone(), inbox: inbox.clone(), drive: None, over };
        let is_probe = *method == Method::Discover;
        let modern = is_probe || self.is_modern();
        let stamped = modern.then(|| self.stamp(params, terms));
        let params = stamped.as_ref().or(params);
        if let Err(error) = self.enter(id, method, params, terms, inbox.clone()) {
            exchange.over = true;
            inbox.put(Item::Lost(error));
            return exchange;
        }
        let rpc_id = rpc_id(id, is_probe);
        let sent = match self.link() {
            Link::Pipe(pipe) => pipe.request(id, Frame::request(&rpc_id, method, params)),
            Link::Memory(memory) => {
                memory.send(Message::Request(Request { id: rpc_id, method: method.clone(), params: params.cloned() }))
            }
            Link::Http(http) => {
                let frame = Frame::request(&rpc_id, method, params);
                if let Some(params) = stamped {
                    let post = drive::Post { frame, method: method.clone(), params };
                    exchange.drive = Some(Box::pin(drive::modern_request(self.clone(), http.clone(), id, post)));
                    return exchange;
                }
                exchange.drive = Some(Box::pin(drive::request(self.clone(), http.clone(), id, frame)));
                Ok(())
            }
            Link::Sse(sse) => {
                drive::post(self, sse, id, Frame::request(&rpc_id, method, params));
                Ok(())
            }
        };
        if let Err(error) = sent {
            self.unsent(id, &error);
        }
        exchange
    }
}
