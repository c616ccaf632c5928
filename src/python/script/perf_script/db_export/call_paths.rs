//! The tree of call paths. Each node is a function that the function of its parent called.

use std::collections::HashMap;

/// The index of a node in [`CallPaths`]. The index of the root is 0.
type PathIndex = usize;

/// The function of a node: a symbol, or an address without a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Callee {
    /// The id of the symbol in the database.
    Symbol(u64),
    /// An address.
    Address(u64),
}

/// A row of the table `call_paths`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: u64,
    /// The id of the row of the caller; 0 for the root.
    pub parent_id: u64,
    /// The id of the symbol; 0 if the address has no symbol.
    pub symbol_id: u64,
    /// The address; 0 if the address has a symbol.
    pub address: u64,
}

/// The tree.
#[derive(Debug)]
pub struct CallPaths {
    nodes: Vec<Node>,
    children: HashMap<(PathIndex, Callee), PathIndex>,
    last_id: u64,
}

#[derive(Debug)]
struct Node {
    parent: PathIndex,
    callee: Callee,
    /// The id in the database; 0 if no row was passed for the node yet.
    id: u64,
}

/// The index of the root.
pub const ROOT: PathIndex = 0;

impl CallPaths {
    /// Creates a tree that contains only the root.
    pub fn new() -> CallPaths {
        let root = Node { parent: ROOT, callee: Callee::Address(0), id: 0 };
        CallPaths { nodes: vec![root], children: HashMap::new(), last_id: 0 }
    }

    /// Returns the node for a function that `parent` called.
    pub fn child(&mut self, parent: PathIndex, callee: Callee) -> PathIndex {
        *self.children.entry((parent, callee)).or_insert_with(|| {
            self.nodes.push(Node { parent, callee, id: 0 });
            self.nodes.len() - 1
        })
    }

    /// Returns the id of a node, and the rows of all nodes on its path for which no row was passed yet. The row of a
    /// caller comes before the rows of its callees.
    pub fn export(&mut self, path: PathIndex) -> (u64, Vec<Row>) {
        let mut pending = Vec::new();
        let mut at = path;
        while self.nodes[at].id == 0 {
            pending.push(at);
            if at == ROOT {
                break;
            }
            at = self.nodes[at].parent;
        }
        let mut rows = Vec::new();
        for at in pending.into_iter().rev() {
            self.last_id += 1;
            self.nodes[at].id = self.last_id;
            let Node { parent, callee, id } = self.nodes[at];
            let parent_id = if at == ROOT { 0 } else { self.nodes[parent].id };
            let (symbol_id, address) = match callee {
                Callee::Symbol(symbol) => (symbol, 0),
                Callee::Address(address) => (0, address),
            };
            rows.push(Row { id, parent_id, symbol_id, address });
        }
        (self.nodes[path].id, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_nodes_are_numbered_from_the_root_down() {
        let mut paths = CallPaths::new();
        let main = paths.child(ROOT, Callee::Symbol(7));
        let leaf = paths.child(main, Callee::Address(0x10));
        let (id, rows) = paths.export(leaf);
        let row = |id, parent_id, symbol_id, address| Row { id, parent_id, symbol_id, address };
        assert_eq!((id, rows), (3, vec![row(1, 0, 0, 0), row(2, 1, 7, 0), row(3, 2, 0, 0x10)]));
        assert_eq!(paths.child(main, Callee::Address(0x10)), leaf);
        let other = paths.child(main, Callee::Symbol(8));
        assert_eq!(paths.export(other), (4, vec![row(4, 2, 8, 0)]));
        assert_eq!(paths.export(leaf), (3, Vec::new()));
    }
}
