//! Sessions that work for other sessions: each becomes lanes of the one at the end of its chain.

use super::row::Standing;
use super::symbols::Id;

/// What is known of a session that names a parent or is named as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    /// The session.
    pub(super) unit: Id,
    /// The session that it names; none if it is only named itself.
    pub(super) parent: Id,
    /// Its first call.
    pub(super) first: Standing,
    /// Its calls.
    pub(super) calls: u64,
    /// Whether it is an agent of a session and has no id of its own.
    pub(super) is_agent: bool,
}

/// Where the calls of a session go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// The session.
    pub(super) unit: Id,
    /// The whole session, by its first call.
    pub(super) session: Standing,
    /// Which part of it the calls are; 0 is the root.
    pub(super) part: u32,
    /// The part that it works for.
    pub(super) parent: Option<u32>,
}

/// How the linked sessions hang together.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// A seat for each, in the order of their ids.
    pub(super) seats: Vec<Seat>,
    /// Sessions that became lanes of another.
    pub(super) children: u64,
    /// Agents that became lanes of their session.
    pub(super) agents: u64,
    /// Sessions whose parent is not there.
    pub(super) orphans: u64,
    /// Sessions that would have made their root longer than a session may be.
    pub(super) crowded: u64,
}

/// Seats linked sessions, given in the order of their ids, so that none has more than `calls_max`
/// calls.
pub(super) fn seat(links: &[Link], calls_max: u64) -> Family {
    let index = |id: Id| links.binary_search_by_key(&id, |link| link.unit).ok();
    let parents: Vec<Option<usize>> =
        links.iter().map(|link| index(link.parent).filter(|_| !link.parent.is_none())).collect();
    let mut family = Family::default();
    let named = links.iter().zip(&parents).filter(|(link, _)| !link.parent.is_none());
    family.orphans = named.filter(|(_, parent)| parent.is_none()).count() as u64;
    let roots = roots(links, &parents);
    // Members of a root together: the root first, the others by their first call.
    let mut order: Vec<usize> = (0..links.len()).collect();
    order.sort_by_key(|&at| (links[roots[at]].unit, roots[at] != at, links[at].first));
    let mut seats: Vec<Option<Seat>> = vec![None; links.len()];
    for members in order.chunk_by(|&a, &b| roots[a] == roots[b]) {
        seat_members(links, &parents, members, calls_max, &mut seats, &mut family);
    }
    family.seats = seats.into_iter().flatten().collect();
    family
}

/// Seats the members of one root.
fn seat_members(
    links: &[Link],
    parents: &[Option<usize>],
    members: &[usize],
    calls_max: u64,
    seats: &mut [Option<Seat>],
    family: &mut Family,
) {
    let mut calls = 0;
    let (fitting, crowded): (Vec<usize>, Vec<usize>) = members.iter().partition(|&&member| {
        let fits = calls + links[member].calls <= calls_max || calls == 0;
        calls += if fits { links[member].calls } else { 0 };
        fits
    });
    let first = fitting.iter().map(|&member| links[member].first).min();
    for (part, &member) in fitting.iter().enumerate() {
        let link = &links[member];
        let part = u32::try_from(part).unwrap_or(u32::MAX);
        let session = first.unwrap_or(link.first);
        seats[member] = Some(Seat { unit: link.unit, session, part, parent: None });
    }
    for &member in &fitting[1..] {
        let parent = parents[member].and_then(|parent| seats[parent]).map(|seat| seat.part);
        // A parent that found no room has left its children with the root.
        seats[member] = seats[member].map(|seat| Seat { parent: parent.or(Some(0)), ..seat });
        let is_agent = links[member].is_agent;
        *if is_agent { &mut family.agents } else { &mut family.children } += 1;
    }
    for &member in &crowded {
        let link = &links[member];
        family.crowded += 1;
        seats[member] = Some(Seat { unit: link.unit, session: link.first, part: 0, parent: None });
    }
}

/// The end of each chain of parents. In a ring, which only forged ids make, the session that
/// started first is the end.
fn roots(links: &[Link], parents: &[Option<usize>]) -> Vec<usize> {
    let mut roots: Vec<Option<usize>> = vec![None; links.len()];
    // The walk that a session was last met on.
    let mut met: Vec<usize> = vec![usize::MAX; links.len()];
    for start in 0..links.len() {
        let mut at = start;
        let mut path: Vec<usize> = Vec::new();
        let root = loop {
            if let Some(root) = roots[at] {
                break root;
            }
            if met[at] == start {
                let ring = &path[path.iter().position(|&other| other == at).unwrap_or(0)..];
                break ring.iter().copied().min_by_key(|&at| links[at].first).unwrap_or(at);
            }
            met[at] = start;
            path.push(at);
            match parents[at] {
                Some(parent) => at = parent,
                None => break at,
            }
        };
        path.iter().for_each(|&at| roots[at] = Some(root));
    }
    roots.into_iter().enumerate().map(|(at, root)| root.unwrap_or(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::row::answered;
    use super::*;

    /// Sessions by number, as (parent, calls); they start in the order of their numbers. Gives
    /// session, part and parent's part of each.
    fn seated(sessions: &[(u128, u64)], calls_max: u64) -> (Vec<(i64, u32, Option<u32>)>, Family) {
        let link = |(number, &(parent, calls)): (usize, &(u128, u64))| Link {
            unit: Id(number as u128 + 1),
            parent: Id(parent),
            first: answered(number as i64 + 1, 1, 1).standing(),
            calls,
            is_agent: number == 3,
        };
        let links: Vec<Link> = sessions.iter().enumerate().map(link).collect();
        let family = seat(&links, calls_max);
        let seats = family.seats.iter();
        (seats.map(|seat| (seat.session.start, seat.part, seat.parent)).collect(), family)
    }

    #[test]
    fn children_and_their_children_are_parts_of_the_root() {
        let (seats, family) = seated(&[(0, 1), (1, 1), (2, 1), (1, 1), (99, 1)], 100);
        let expected =
            [(1, 0, None), (1, 1, Some(0)), (1, 2, Some(1)), (1, 3, Some(0)), (5, 0, None)];
        assert_eq!(seats, expected);
        assert_eq!((family.children, family.agents), (2, 1));
        assert_eq!((family.orphans, family.crowded), (1, 0));
    }

    #[test]
    fn the_first_of_a_ring_is_its_root_and_a_tail_belongs_to_it() {
        let (seats, family) = seated(&[(2, 1), (3, 1), (1, 1), (3, 1)], 100);
        assert!(seats.iter().all(|&(session, ..)| session == 1), "{seats:?}");
        assert_eq!((seats[0].1, family.children + family.agents), (0, 3));
    }

    #[test]
    fn a_child_that_finds_no_room_stands_alone() {
        let (seats, family) = seated(&[(0, 5), (1, 9), (2, 4)], 10);
        assert_eq!(seats, [(1, 0, None), (2, 0, None), (1, 1, Some(0))]);
        assert_eq!((family.children, family.crowded), (1, 1));
    }
}
