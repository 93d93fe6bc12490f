//! How a user tests an interface of their own: a bank whose customers transfer money through a bad
//! network, while the bank crashes and comes back.
//!
//! What must be true, whatever happens: no money is made or lost; a transfer is made at most once; one
//! that was reported as made was made, one that was reported as not made was not, and never will be.
//! Two programs with a mistake in them, a customer who repeats what may have been done and a bank
//! that writes in two steps, are caught.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::{Error, Ran};
use farcall_sim::{Failure, Sim, check, find, sim};

// The program that is tested. Nothing in it knows of the simulation but its pauses for the disk.

#[farcall::interface]
trait Bank {
    /// Moves money, and returns what is left in `from`. The number names the transfer in the books.
    fn transfer(&self, number: u64, from: u32, to: u32, amount: u64) -> farcall::Result<u64, Refused>;
    /// The money in an account.
    #[idempotent]
    fn balance(&self, account: u32) -> farcall::Result<u64>;
}

#[derive(Debug, PartialEq, farcall::Xdr)]
enum Refused {
    NoSuchAccount,
    NotEnough,
}

/// What is on the bank's disk: it outlives a crash.
#[derive(Default)]
struct Books {
    accounts: BTreeMap<u32, u64>,
    /// The numbers of the transfers that were made.
    made: Vec<u64>,
}

struct Teller {
    books: Arc<Mutex<Books>>,
    /// The mistake: the two accounts are written one after the other.
    in_two_steps: bool,
}

impl Bank for Teller {
    fn transfer(&self, number: u64, from: u32, to: u32, amount: u64) -> farcall::Result<u64, Refused> {
        let left = {
            let mut books = self.books.lock().unwrap();
            let has = *books.accounts.get(&from).ok_or(Refused::NoSuchAccount)?;
            let left = has.checked_sub(amount).ok_or(Refused::NotEnough)?;
            if !books.accounts.contains_key(&to) {
                return Err(Refused::NoSuchAccount.into());
            }
            books.accounts.insert(from, left);
            if !self.in_two_steps {
                books.pay_in(number, to, amount);
            }
            left
        };
        disk();
        if self.in_two_steps {
            self.books.lock().unwrap().pay_in(number, to, amount);
        }
        Ok(left)
    }

    fn balance(&self, account: u32) -> farcall::Result<u64> {
        Ok(self.books.lock().unwrap().accounts.get(&account).copied().unwrap_or(0))
    }
}

impl Books {
    fn pay_in(&mut self, number: u64, to: u32, amount: u64) {
        *self.accounts.entry(to).or_default() += amount;
        self.made.push(number);
    }
}

/// A write takes its time, in which the bank may crash.
fn disk() {
    sim::sleep(Duration::from_micros(sim::below(20_000)));
}

/// What a customer was told of each transfer.
type Receipts = Arc<Mutex<Vec<(u64, Told)>>>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Made,
    NotMade,
    Unknown,
}

/// Makes transfers. The mistake: `stubborn` repeats one until it hears that it was made.
fn customer(which: u64, stubborn: bool, receipts: &Receipts) -> farcall::Result<()> {
    let bank = loop {
        match farcall::import::<dyn Bank>("Bank") {
            Ok(bank) => break bank.within(Duration::from_secs(20)),
            Err(_) => sim::sleep(Duration::from_millis(500)),
        }
    };
    for n in 0..TRANSFERS {
        let number = which * TRANSFERS + n;
        let (from, to) = (sim::below(ACCOUNTS) as u32, sim::below(ACCOUNTS) as u32);
        let told = loop {
            match bank.transfer(number, from, to, 1 + sim::below(10)) {
                Ok(_) => break Told::Made,
                Err(Error::Declared(_)) => break Told::NotMade,
                Err(Error::CallFailed(why)) => match why.ran() {
                    Ran::No => break Told::NotMade,
                    Ran::Maybe if stubborn => sim::sleep(Duration::from_millis(100)),
                    // `Yes` says that it ran, and that what came of it is lost.
                    _ => break Told::Unknown,
                },
            }
        };
        receipts.lock().unwrap().push((number, told));
        sim::sleep(Duration::from_millis(sim::below(100)));
    }
    Ok(())
}

// The test.

const ACCOUNTS: u64 = 4;
const MONEY: u64 = 100;
const TRANSFERS: u64 = 12;
const CUSTOMERS: u64 = 3;

/// One run: the bank, its customers, and what befalls them.
fn run(sim: &Sim, stubborn: bool, in_two_steps: bool) {
    let accounts = (0..ACCOUNTS).map(|account| (account as u32, MONEY)).collect();
    let books = Arc::new(Mutex::new(Books { accounts, made: Vec::new() }));
    let receipts = Receipts::default();

    sim.random_faults();
    let bank = {
        let books = books.clone();
        sim.server("bank", move || {
            let teller = Teller { books: books.clone(), in_two_steps };
            farcall::export::<dyn Bank>("Bank/main-street", Arc::new(teller))?.wait()
        })
    };
    let customers: Vec<_> = (0..CUSTOMERS)
        .map(|which| {
            let receipts = receipts.clone();
            sim.process(&format!("customer {which}"), move || customer(which, stubborn, &receipts))
        })
        .collect();
    for _ in 0..sim.below(6) {
        sim.sleep(Duration::from_millis(sim.below(1500)));
        match sim.below(3) {
            0 => {
                bank.crash();
                sim.sleep(Duration::from_millis(sim.below(3000)));
                bank.restart();
            }
            1 => {
                bank.pause();
                sim.sleep(Duration::from_millis(sim.below(15_000)));
                bank.resume();
            }
            _ => {
                let customer = &customers[sim.below(CUSTOMERS) as usize];
                sim.cut(&bank, customer);
                sim.sleep(Duration::from_millis(sim.below(15_000)));
                sim.heal();
            }
        }
    }
    sim.run();
    audit(&books.lock().unwrap(), &receipts.lock().unwrap());
}

/// What must be true in the end.
fn audit(books: &Books, receipts: &[(u64, Told)]) {
    let money: u64 = books.accounts.values().sum();
    assert_eq!(money, ACCOUNTS * MONEY, "money was made or lost");
    assert_eq!(receipts.len() as u64, CUSTOMERS * TRANSFERS);
    for (number, told) in receipts {
        let times = books.made.iter().filter(|made| *made == number).count();
        assert!(times <= 1, "transfer {number} was made {times} times");
        match told {
            Told::Made => assert_eq!(times, 1, "transfer {number} was reported as made"),
            Told::NotMade => assert_eq!(times, 0, "transfer {number} was reported as not made"),
            Told::Unknown => {}
        }
    }
}

#[test]
fn a_bank_keeps_its_promises_whatever_happens() {
    check(100, |sim| run(sim, false, false));
}

#[test]
fn a_customer_who_repeats_what_may_have_been_done_is_caught() {
    let failure = find(100, |sim| run(sim, true, false)).expect("the mistake shows");
    assert!(failure.why.contains("was made 2 times"), "{failure}");
}

#[test]
fn a_bank_that_writes_in_two_steps_is_caught() {
    let failure: Failure = find(100, |sim| run(sim, false, true)).expect("the mistake shows");
    assert!(failure.why.contains("money was made or lost"), "{failure}");
}
