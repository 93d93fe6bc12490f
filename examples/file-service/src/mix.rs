//! The mix of file operations that Thekkath et al. 1994 report in table 1a, scaled to any number of
//! operations, and its replay against any clerk.

use std::path::Path;
use std::{fmt, fs, io};

use farcall::Result;
use farcall_file_access::{FileError, FileKind};
use fastrand::Rng;

use crate::{BLOCK, Counts, Files, Handle, Tally, names};

/// A row of table 1a.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Get File Attribute.
    Attributes,
    /// Lookup File Name.
    LookUp,
    /// Read File Data: a block of 8 KiB, or the whole file if it is shorter.
    Read,
    /// Null Ping Call.
    Null,
    /// Read Symbolic Link.
    ReadLink,
    /// Read Directory Contents: the first page of a directory.
    ReadDirectory,
    /// Read File System Stats.
    Statistics,
    /// Write File Data: an existing block of 8 KiB, or the whole file if it is shorter.
    Write,
    /// Other: operations whose results are in no table of the server's memory. They are replayed as commits,
    /// which the server must always execute.
    Other,
}

impl Operation {
    /// Table 1a: the number of calls of each operation in several days at the authors' file server.
    pub const TABLE: [(Operation, u64); 9] = [
        (Operation::Attributes, 8_960_671),
        (Operation::LookUp, 8_840_866),
        (Operation::Read, 4_478_036),
        (Operation::Null, 3_602_730),
        (Operation::ReadLink, 1_628_256),
        (Operation::ReadDirectory, 981_345),
        (Operation::Statistics, 149_142),
        (Operation::Write, 109_712),
        (Operation::Other, 109_986),
    ];

    /// The sum of the table's counts.
    pub const TOTAL: u64 = 28_860_744;

    /// Returns the operation's name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Attributes => "Get File Attribute",
            Operation::LookUp => "Lookup File Name",
            Operation::Read => "Read File Data",
            Operation::Null => "Null Ping Call",
            Operation::ReadLink => "Read Symbolic Link",
            Operation::ReadDirectory => "Read Directory Contents",
            Operation::Statistics => "Read File System Stats.",
            Operation::Write => "Write File Data",
            Operation::Other => "Other",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Operations in the table's proportions, in random order. The same seed gives the same order.
#[derive(Clone, Debug)]
pub struct Mix {
    /// The number of remaining operations of each row.
    left: [u64; 9],
    rng: Rng,
}

impl Mix {
    /// Returns a mix of this many operations. [`Operation::TOTAL`] operations are the table itself.
    pub fn new(operations: u64, seed: u64) -> Mix {
        let exact = |count: u64| u128::from(count) * u128::from(operations);
        let mut left =
            Operation::TABLE.map(|(_, count)| (exact(count) / u128::from(Operation::TOTAL)) as u64);
        // Rounding leaves out some operations. These are added to the rows that have lost most.
        let mut by_loss: Vec<usize> = (0..left.len()).collect();
        by_loss.sort_by_key(|row| {
            std::cmp::Reverse(exact(Operation::TABLE[*row].1) % u128::from(Operation::TOTAL))
        });
        let lost = operations - left.iter().sum::<u64>();
        by_loss.into_iter().take(lost as usize).for_each(|row| left[row] += 1);
        Mix { left, rng: Rng::with_seed(seed) }
    }
}

impl Iterator for Mix {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        let sum: u64 = self.left.iter().sum();
        if sum == 0 {
            return None;
        }
        let mut drawn = self.rng.u64(..sum);
        for (left, (operation, _)) in self.left.iter_mut().zip(Operation::TABLE) {
            if drawn < *left {
                *left -= 1;
                return Some(operation);
            }
            drawn -= *left;
        }
        None
    }
}

/// The files of a server, from which operations choose.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// All handles.
    pub all: Vec<Handle>,
    /// Directories.
    pub directories: Vec<Handle>,
    /// Names in directories.
    pub names: Vec<(Handle, String)>,
    /// Regular files that are not empty, with their sizes.
    pub files: Vec<(Handle, u64)>,
    /// Symbolic links.
    pub links: Vec<Handle>,
}

impl Tree {
    /// Looks up every file below the root, so that the clerk knows all handles.
    ///
    /// # Errors
    /// The clerk's error.
    pub fn walk(files: &dyn Files) -> Result<Tree, FileError> {
        let root = files.root()?;
        let mut tree = Tree { all: vec![root], directories: vec![root], ..Tree::default() };
        let mut next = 0;
        while let Some(directory) = tree.directories.get(next).copied() {
            next += 1;
            for name in names(files, directory)? {
                let found = files.look_up(directory, &name)?;
                let attributes = files.attributes(found.handle)?;
                tree.all.push(found.handle);
                tree.names.push((directory, name));
                match found.kind {
                    FileKind::Directory => tree.directories.push(found.handle),
                    FileKind::Link => tree.links.push(found.handle),
                    FileKind::File if attributes.size > 0 => tree.files.push((found.handle, attributes.size)),
                    _ => {}
                }
            }
        }
        Ok(tree)
    }

    /// Requests everything once, so that the server's memory gets all entries for which it has room.
    ///
    /// # Errors
    /// The clerk's error.
    pub fn touch(&self, files: &dyn Files) -> Result<(), FileError> {
        files.statistics()?;
        self.all.iter().try_for_each(|file| files.attributes(*file).map(drop))?;
        self.names.iter().try_for_each(|(directory, name)| files.look_up(*directory, name).map(drop))?;
        self.links.iter().try_for_each(|link| files.read_link(*link).map(drop))?;
        self.directories.iter().try_for_each(|directory| names(files, *directory).map(drop))?;
        for (file, size) in &self.files {
            (0..size.div_ceil(BLOCK as u64))
                .try_for_each(|block| files.read(*file, block * BLOCK as u64, BLOCK as u32).map(drop))?;
        }
        Ok(())
    }
}

/// Executes one operation on a randomly chosen file of the tree.
///
/// # Errors
/// The clerk's error, or [`FileError::NotFound`] if there is no file to choose.
pub fn perform(files: &dyn Files, tree: &Tree, rng: &mut Rng, operation: Operation) -> Result<(), FileError> {
    match operation {
        Operation::Attributes => files.attributes(*choose(&tree.all, rng)?).map(drop),
        Operation::LookUp => {
            let (directory, name) = choose(&tree.names, rng)?;
            files.look_up(*directory, name).map(drop)
        }
        Operation::Read => {
            let (file, offset, _) = choose_block(tree, rng)?;
            files.read(file, offset, BLOCK as u32).map(drop)
        }
        Operation::Null => files.null(),
        Operation::ReadLink => files.read_link(*choose(&tree.links, rng)?).map(drop),
        Operation::ReadDirectory => files.read_directory(*choose(&tree.directories, rng)?, "").map(drop),
        Operation::Statistics => files.statistics().map(drop),
        Operation::Write => {
            let (file, offset, length) = choose_block(tree, rng)?;
            files.write(file, offset, &[rng.u8(..); BLOCK][..length])
        }
        Operation::Other => files.commit(choose(&tree.files, rng)?.0),
    }
}

fn choose<'a, T>(of: &'a [T], rng: &mut Rng) -> std::result::Result<&'a T, FileError> {
    rng.choice(of).ok_or(FileError::NotFound)
}

/// Returns a random block of a file: the file, the block's offset and its length.
fn choose_block(tree: &Tree, rng: &mut Rng) -> std::result::Result<(Handle, u64, usize), FileError> {
    let (file, size) = *choose(&tree.files, rng)?;
    let offset = rng.u64(..size.div_ceil(BLOCK as u64)) * BLOCK as u64;
    Ok((file, offset, (size - offset).min(BLOCK as u64) as usize))
}

/// The counts of one operation in a replay.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The operation.
    pub operation: Operation,
    /// How often the operation was executed.
    pub times: u64,
    /// The clerk's accesses and calls for the operation.
    pub counts: Counts,
}

/// Replays this many operations of the mix, one after the other. `tally` belongs to the clerk of `files`.
///
/// # Errors
/// The clerk's error.
pub fn replay(
    files: &dyn Files,
    tally: &Tally,
    tree: &Tree,
    operations: u64,
    seed: u64,
) -> Result<Vec<Row>, FileError> {
    let row = |operation| Row { operation, times: 0, counts: Counts::default() };
    let mut rows = Operation::TABLE.map(|(operation, _)| row(operation));
    let mut rng = Rng::with_seed(seed ^ 1);
    for operation in Mix::new(operations, seed) {
        let before = tally.counts();
        perform(files, tree, &mut rng, operation)?;
        let row = &mut rows[operation as usize];
        row.times += 1;
        row.counts = row.counts.plus(tally.counts().since(before));
    }
    Ok(rows.to_vec())
}

/// Creates a tree of real files in an empty directory: mostly small files, in directories of about thirty
/// names.
///
/// # Errors
/// The system's error.
pub fn plant(directory: &Path, seed: u64) -> io::Result<()> {
    let mut rng = Rng::with_seed(seed);
    for d in 0..8 {
        let directory = directory.join(format!("directory-{d}"));
        fs::create_dir(&directory)?;
        for f in 0..24 {
            let length =
                [rng.usize(1..1024), rng.usize(1..BLOCK), BLOCK, 3 * BLOCK, rng.usize(1..6 * BLOCK)][f % 5];
            let bytes: Vec<u8> = (0..length).map(|_| rng.u8(..)).collect();
            fs::write(directory.join(format!("file-{f}")), bytes)?;
        }
        for l in 0..4 {
            std::os::unix::fs::symlink(format!("file-{l}"), directory.join(format!("link-{l}")))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(mix: Mix) -> [u64; 9] {
        let mut counts = [0; 9];
        mix.for_each(|operation| counts[operation as usize] += 1);
        counts
    }

    #[test]
    fn the_table_adds_up() {
        assert_eq!(Operation::TABLE.iter().map(|(_, count)| count).sum::<u64>(), Operation::TOTAL);
        assert!(Operation::TABLE.iter().enumerate().all(|(row, (operation, _))| *operation as usize == row));
        assert_eq!(Mix::new(Operation::TOTAL, 1).left, Operation::TABLE.map(|(_, count)| count));
    }

    #[test]
    fn a_part_of_the_table_has_its_proportions_and_an_order_by_seed() {
        for operations in [0, 1, 10, 1_000, 12_345] {
            let counts = counted(Mix::new(operations, 7));
            assert_eq!(counts.iter().sum::<u64>(), operations);
            for (count, (_, of_table)) in counts.iter().zip(Operation::TABLE) {
                let exact = of_table as f64 * operations as f64 / Operation::TOTAL as f64;
                assert!((*count as f64 - exact).abs() <= 1.0, "{count} for {exact}");
            }
        }
        let order = |seed| Mix::new(1_000, seed).collect::<Vec<_>>();
        assert_eq!(order(3), order(3));
        assert_ne!(order(3), order(4));
    }
}
