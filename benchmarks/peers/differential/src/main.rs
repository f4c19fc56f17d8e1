//! closure(x, y) :- edge(x, y).  closure(x, y) :- edge(x, z), closure(z, y).

#[path = "../../session.rs"]
mod session;

use std::cell::RefCell;
use std::rc::Rc;

use differential_dataflow::input::Input;
use differential_dataflow::operators::Iterate;
use session::{now, Change, Session};
use timely::dataflow::operators::probe::Handle;

fn main() {
    timely::execute_directly(|worker| {
        let mut session = Session::open();
        let found: Rc<RefCell<Vec<Change>>> = Rc::default();
        let sink = found.clone();
        let mut probe = Handle::new();
        let start = now();
        let mut input = worker.dataflow::<u32, _, _>(|scope| {
            let (input, edges) = scope.new_collection::<(u32, u32), isize>();
            edges
                .clone()
                .iterate(|scope, closure| {
                    let edges = edges.enter(scope);
                    let back = edges.clone().map(|(x, z)| (z, x));
                    closure.join_map(back, |_z, y, x| (*x, *y)).concat(edges).distinct()
                })
                .consolidate()
                .inspect(move |(pair, _, weight)| sink.borrow_mut().push((*pair, *weight as i64)))
                .probe_with(&mut probe);
            input
        });
        for edge in &session.edges {
            input.insert(*edge);
        }
        input.advance_to(1);
        input.flush();
        worker.step_while(|| probe.less_than(input.time()));
        session.report_initial(now() - start, found.take().len());
        for i in 0..session.operations.len() {
            let (edge, weight) = (session.operations[i].edge, session.operations[i].weight);
            let start = now();
            input.update(edge, weight as isize);
            input.advance_to(i as u32 + 2);
            input.flush();
            worker.step_while(|| probe.less_than(input.time()));
            let time = now() - start;
            session.report(time, found.take().into_iter());
        }
    });
}
