//! Lists, for people, the definitions that wait for approval, those that are suspicious, and those that a lock holds.

use std::sync::Arc;

use super::pinned::Listed;
use super::pins::Records;
use super::{Manager, Server, lock};
#[cfg(feature = "server")]
use crate::dial::Certificates;
use crate::keep;
use crate::pins::{Error, Said, Stated, Suspicion, Waiting, pointers, suspicions};
use crate::registry::{Kind, Neighbours};

impl Manager {
    /// Notes that an endpoint at this address serves the page. Only the first call has an effect.
    #[cfg(feature = "server")]
    pub(crate) fn serves_page_at(&self, listen: std::net::SocketAddr) {
        let _ = self.0.page.set(listen);
    }

    /// Returns the address of the page where a person decides; `None` if there is no page.
    #[cfg(feature = "server")]
    pub(crate) fn page(&self) -> Option<String> {
        let listen = self.0.page.get()?;
        self.settings().page_at(*listen).ok().map(|page| format!("{page}#approve"))
    }

    /// Returns the address of the page where a person decides: without an endpoint there is none.
    #[cfg(not(feature = "server"))]
    pub(crate) fn page(&self) -> Option<String> {
        None
    }

    /// Notes that no person makes decisions at this mcp-host.
    pub(crate) fn leave_unattended(&self) {
        let _ = self.0.unattended.set(());
    }

    /// Reports whether no person makes decisions at this mcp-host.
    pub(crate) fn is_unattended(&self) -> bool {
        self.0.unattended.get().is_some()
    }

    /// Returns the certificates of servers that are trusted on first use.
    #[cfg(feature = "server")]
    pub(crate) fn certificates(&self) -> Certificates {
        self.0.keys.dialer().certificates()
    }

    /// Returns the definitions that wait for approval, server by server.
    pub(crate) async fn unapproved(&self) -> Result<Vec<Waiting>, Error> {
        let Some(keeper) = self.0.pins.get() else { return Ok(Vec::new()) };
        let servers = self.servers();
        let pinned = servers.iter().filter(|server| !server.has_no_pins());
        match &keeper.records {
            Records::Disk(pins) => {
                let pins = pins.clone().strict(servers.iter().any(|server| server.pinned.is_wary()));
                pins.waiting(&pinned.map(|server| server.config.clone()).collect::<Vec<_>>()).await
            }
            Records::Memory(books) => {
                let (books, mut neighbours) = (lock(books), Neighbours::default());
                let book = |server: &Arc<Server>| books.book(&server.config);
                for (server, book) in servers.iter().filter_map(|server| Some((server, book(server)?))) {
                    book.tools().for_each(|tool| neighbours.add(server.config.alias.as_str(), &tool));
                }
                let shown = |server: &Arc<Server>| {
                    Some(book(server)?.shown(&server.config, &neighbours, server.pinned.is_wary()))
                };
                Ok(pinned.filter_map(shown).flatten().collect())
            }
        }
    }

    /// Returns the newest listing of each server that has one.
    fn listings(&self) -> Vec<(Arc<Server>, Listed)> {
        let listed = |server: &Arc<Server>| {
            let upstreams = server.upstreams();
            let mut offers = upstreams.iter().rev().filter_map(|upstream| upstream.offer());
            let offer = offers.next().or_else(|| server.last_offers.newest())?;
            let peers = upstreams.iter().rev().filter_map(|upstream| upstream.connection()?.peer().cloned());
            let instructions = peers.filter_map(|peer| peer.instructions).next().map(Into::into);
            Some((server.clone(), Listed { offer, instructions, is_everything: true }))
        };
        self.servers().iter().filter_map(listed).collect()
    }

    /// Returns the definitions that servers list now, with their pins.
    pub(crate) async fn stated(&self) -> Vec<Stated> {
        let all = self.listings();
        keep::done(move || {
            let each = |(server, listed): &(Arc<Server>, Listed)| {
                let (name, said) = (server.config.name.clone(), listed.pinned(&pointers(&server.config)).said);
                said.into_iter().map(move |Said { what, name: own, form }| Stated {
                    server: name.clone(),
                    what,
                    name: own,
                    pin: form.pin,
                    text: form.text,
                })
            };
            all.iter().flat_map(each).collect()
        })
        .await
    }

    /// Finds what is suspicious in what the servers list now.
    pub(crate) async fn suspicions(&self) -> Vec<Suspicion> {
        let all = self.listings();
        keep::done(move || {
            let mut neighbours = Neighbours::default();
            for (server, listed) in &all {
                listed.offer.said(Kind::Tools).for_each(|(_, tool)| neighbours.add(server.config.alias.as_str(), tool));
            }
            let mut found = Vec::new();
            for (server, listed) in &all {
                let (name, alias) = (&server.config.name, server.config.alias.as_str());
                for Said { what, name: own, form } in listed.pinned(&[]).said {
                    let all = suspicions(what, alias, &form.text, &neighbours).into_iter();
                    found.extend(all.map(|finding| Suspicion {
                        server: name.clone(),
                        what,
                        name: own.clone(),
                        finding,
                    }));
                }
            }
            found
        })
        .await
    }

    /// Approves exactly these changes, except those that their servers no longer list.
    pub(crate) async fn approve(&self, changes: &[Waiting]) -> Result<usize, Error> {
        let Some(keeper) = self.0.pins.get() else { return Ok(0) };
        let mut count = 0;
        for server in self.servers().iter() {
            let own: Vec<Waiting> = changes.iter().filter(|one| one.server == server.config.name).cloned().collect();
            if own.is_empty() {
                continue;
            }
            count += match &keeper.records {
                Records::Disk(pins) => pins.approve(&server.config, &own).await?,
                Records::Memory(books) => {
                    let forms: Vec<_> = own.into_iter().map(|one| (one.what, one.name, one.pin)).collect();
                    lock(books).approve(&server.config, &forms)
                }
            };
        }
        self.read_pins(&keeper.clone()).await;
        Ok(count)
    }
}
