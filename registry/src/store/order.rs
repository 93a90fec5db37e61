//! The order in which garbage collection removes manifests: each after those that keep it.
//!
//! ```text
//!  index ──lists──> image ──lists──> blobs         removed: index, image, signature
//!                     ^
//!                     +──subject── signature       the image keeps its signature
//! ```
//!
//! While one that a client saw a moment ago stays, nothing of what it keeps has been removed.
//!
//! A manifest may list its own subject, directly or through others: then each keeps the other. Of such a circle the order
//! follows the lists only, which have no circles, because a document contains the digests of what it lists.

/// Not yet visited, or in no circle yet.
const OPEN: usize = usize::MAX;

/// Every node after the nodes that list it, and after its subject where that is possible. For each node: `lists`, what it lists,
/// and `referrers`, the nodes whose subject it is.
pub(super) fn top_down(lists: &[Vec<usize>], referrers: &[Vec<usize>]) -> Vec<usize> {
    let circle = circles(lists, referrers);
    let kept_by = |node: usize| {
        let about = referrers[node].iter().filter(|other| circle[node] != circle[**other]);
        lists[node].iter().chain(about).copied().collect::<Vec<usize>>()
    };
    let mut above = vec![0_usize; lists.len()];
    for node in 0..lists.len() {
        kept_by(node).into_iter().for_each(|other| above[other] += 1);
    }
    let mut order: Vec<usize> = (0..lists.len()).filter(|node| above[*node] == 0).collect();
    let mut done = 0;
    while let Some(node) = order.get(done).copied() {
        done += 1;
        for other in kept_by(node) {
            above[other] -= 1;
            if above[other] == 0 {
                order.push(other);
            }
        }
    }
    order
}

/// A number for each node; those that keep each other have the same one. Tarjan's algorithm, without recursion: a client
/// decides how deep the lists are.
fn circles(lists: &[Vec<usize>], referrers: &[Vec<usize>]) -> Vec<usize> {
    let next = |node: usize, number: usize| {
        let listed = lists[node].get(number);
        listed.or_else(|| referrers[node].get(number - lists[node].len())).copied()
    };
    let count = lists.len();
    let (mut circle, mut visit, mut lowest) = (vec![OPEN; count], vec![OPEN; count], vec![OPEN; count]);
    let (mut visits, mut open) = (0, Vec::new());
    // The nodes on the way from the root, each with how many of its neighbours were looked at.
    let mut way: Vec<(usize, usize)> = Vec::new();
    for root in 0..count {
        if visit[root] == OPEN {
            way.push((root, 0));
        }
        while let Some((node, number)) = way.last().copied() {
            if number == 0 && visit[node] == OPEN {
                (visit[node], lowest[node]) = (visits, visits);
                visits += 1;
                open.push(node);
            }
            if let Some((_, number)) = way.last_mut() {
                *number += 1;
            }
            match next(node, number) {
                Some(other) if visit[other] == OPEN => way.push((other, 0)),
                Some(other) if circle[other] == OPEN => lowest[node] = lowest[node].min(visit[other]),
                Some(_) => {}
                None => {
                    way.pop();
                    if let Some((before, _)) = way.last() {
                        lowest[*before] = lowest[*before].min(lowest[node]);
                    }
                    while lowest[node] == visit[node] && circle[node] == OPEN {
                        let Some(member) = open.pop() else { break };
                        circle[member] = node;
                    }
                }
            }
        }
    }
    circle
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// All that a node keeps.
    fn below(node: usize, lists: &[Vec<usize>], referrers: &[Vec<usize>]) -> BTreeSet<usize> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![node]);
        while let Some(node) = open.pop() {
            let next = lists[node].iter().chain(&referrers[node]);
            open.extend(next.filter(|other| seen.insert(**other)));
        }
        seen
    }

    #[test]
    fn a_chain_as_long_as_a_client_likes_is_ordered() {
        let count = 200_000;
        let lists: Vec<Vec<usize>> =
            (0..count).map(|node| (node > 0).then(|| node - 1).into_iter().collect()).collect();
        let order = top_down(&lists, &vec![Vec::new(); count]);
        assert!(order.into_iter().eq((0..count).rev()));
    }

    #[test]
    fn an_index_that_lists_its_subject_comes_before_it_and_other_referrers_come_after() {
        // 0 is the image, 1 the index about it, 2 a signature, 3 an index of all.
        let lists = [vec![], vec![0], vec![], vec![1]];
        let referrers = [vec![1, 2], vec![], vec![], vec![]];
        assert_eq!(top_down(&lists, &referrers), [3, 1, 0, 2]);
    }

    proptest! {
        #[test]
        fn everything_comes_after_what_keeps_it(
            edges in proptest::collection::vec((0_usize..12, 0_usize..12), 0..30),
            subjects in proptest::collection::vec(proptest::option::of(0_usize..12), 12),
        ) {
            let (mut lists, mut referrers) = (vec![Vec::new(); 12], vec![Vec::new(); 12]);
            // Lists have no circles.
            edges.into_iter().filter(|(from, to)| from > to).for_each(|(from, to)| lists[from].push(to));
            for (node, subject) in subjects.into_iter().enumerate() {
                referrers[subject.unwrap_or(node)].extend(subject.filter(|subject| *subject != node).map(|_| node));
            }
            let order = top_down(&lists, &referrers);
            let place = |node: usize| order.iter().position(|other| *other == node).unwrap();
            prop_assert_eq!(order.len(), 12);
            for node in 0..12 {
                for listed in &lists[node] {
                    prop_assert!(place(node) < place(*listed), "{} lists {}", node, listed);
                }
                for other in &referrers[node] {
                    let circle = below(*other, &lists, &referrers).contains(&node);
                    prop_assert!(circle || place(node) < place(*other), "{} is the subject of {}", node, other);
                }
            }
        }
    }
}
