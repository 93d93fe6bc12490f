//! An example of a user's test of an interface: a bank, whose customers transfer money through a bad network
//! while the bank crashes and comes back.
//!
//! In every run the following must hold. No money is made or lost. A transfer is made at most once. A
//! transfer that was reported as made was made. A transfer that was reported as not made was not made and
//! never will be. The test also shows that it catches two mistakes: a customer who repeats a transfer that
//! may have been made, and a bank that writes the two accounts in two steps.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::{Error, Ran};
use farcall_sim::{Failure, Sim, check, find, sim};

// The tested program. It knows nothing of the simulation except the pauses for its disk.

#[farcall::interface]
trait Bank {
    /// Moves money. Returns the remaining money in `from`. The number identifies the transfer in the books.
    fn transfer(&self, number: u64, from: u32, to: u32, amount: u64) -> farcall::Result<u64, Refused>;
    /// Returns the money in an account.
    #[idempotent]
    fn balance(&self, account: u32) -> farcall::Result<u64>;
}

#[derive(Debug, PartialEq, farcall::Xdr)]
enum Refused {
    NoSuchAccount,
    NotEnough,
}

/// The content of the bank's disk, which survives a crash.
#[derive(Default)]
struct Books {
    accounts: BTreeMap<u32, u64>,
    /// The numbers of the transfers that were made.
    made: Vec<u64>,
}

struct Teller {
    books: Arc<Mutex<Books>>,
    /// Whether the bank makes the mistake of writing the two accounts one after the other.
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

/// Takes the time of a write to the disk. The bank may crash meanwhile.
fn disk() {
    sim::sleep(Duration::from_micros(sim::below(20_000)));
}

/// What each customer was told about each transfer.
type Receipts = Arc<Mutex<Vec<(u64, Told)>>>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Made,
    NotMade,
    Unknown,
}

/// Makes transfers. With `stubborn` the customer makes the mistake of repeating a transfer until the bank
/// reports that it was made.
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
                    // `Yes` means that the transfer was executed, and that its result is lost.
                    _ => break Told::Unknown,
                },
            }
        };
        receipts.lock().unwrap().push((number, told));
        sim::sleep(Duration::from_millis(sim::below(100)));
    }
    Ok(())
}

// The test itself.

const ACCOUNTS: u64 = 4;
const MONEY: u64 = 100;
const TRANSFERS: u64 = 12;
const CUSTOMERS: u64 = 3;

/// Runs the bank and its customers once, with faults.
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

/// Checks at the end of a run what must hold.
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
