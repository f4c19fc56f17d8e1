//! What the peers share: the graph and the operations that Python wrote, the clock, and the report that it reads.
//!
//! Arguments: a file of edges, one "x y" in a line; a file of operations, one "D x y" or "I x y" in a line; the file of changes to
//! write, one "operation x y weight" in a line. Standard output: "initial NANOSECONDS PAIRS KILOBYTES", then the nanoseconds of
//! each operation. All times are CPU time of the process.

use std::fs::{read_to_string, File};
use std::io::{BufWriter, Write};

pub type Node = u32;
pub type Change = ((Node, Node), i64);

pub struct Operation {
    pub edge: (Node, Node),
    pub weight: i64,
}

pub struct Session {
    pub edges: Vec<(Node, Node)>,
    pub operations: Vec<Operation>,
    changes: BufWriter<File>,
    count: usize,
}

impl Session {
    pub fn open() -> Session {
        let paths: Vec<String> = std::env::args().skip(1).collect();
        let pair = |x: &str, y: &str| (x.parse().unwrap(), y.parse().unwrap());
        let fields = |path: &str| -> Vec<Vec<String>> {
            let text = read_to_string(path).unwrap();
            text.lines().map(|line| line.split(' ').map(String::from).collect()).collect()
        };
        Session {
            edges: fields(&paths[0]).iter().map(|f| pair(&f[0], &f[1])).collect(),
            operations: fields(&paths[1])
                .iter()
                .map(|f| Operation { edge: pair(&f[1], &f[2]), weight: if f[0] == "I" { 1 } else { -1 } })
                .collect(),
            changes: BufWriter::new(File::create(&paths[2]).unwrap()),
            count: 0,
        }
    }

    pub fn report_initial(&self, nanoseconds: u64, pairs: usize) {
        println!("initial {} {} {}", nanoseconds, pairs, resident_kilobytes());
    }

    pub fn report(&mut self, nanoseconds: u64, changes: impl Iterator<Item = Change>) {
        println!("{}", nanoseconds);
        for ((x, y), weight) in changes {
            writeln!(self.changes, "{} {} {} {}", self.count, x, y, weight).unwrap();
        }
        self.count += 1;
    }
}

/// CPU time of all threads of this process.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn resident_kilobytes() -> u64 {
    let status = read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
