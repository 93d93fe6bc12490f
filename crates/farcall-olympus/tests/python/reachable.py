"""Prints all states that SNAKES finds for each net: one graph as JSON in each line of the input.

A node is a start and an end with a place between them for each choice of inputs; so the state says which firings are
under way. Capacities are complement places, from which the start takes what its end may put. A line of the output
is a JSON array of the states: the tokens of the places, and the firings as NODE:INPUT,INPUT, sorted.
"""

import itertools
import json
import sys

from snakes.nets import (Inhibitor, MultiArc, PetriNet, Place, StateGraph, Test, Transition, Value, dot)

# More than any of the nets has, so that a net that grows for ever only by mistake ends the comparison.
MAX_STATES = 5_000


def tokens(count):
    """Returns the annotation of an arc that moves this many plain tokens."""
    return Value(dot) if count == 1 else MultiArc([Value(dot)] * count)


class Translation:
    """A graph as a net of SNAKES."""

    def __init__(self, graph):
        self.graph = graph
        self.net = PetriNet("net")
        self.firings = {}  # the name of a place of firings: the node and the inputs
        self.capacities = [place.get("capacity") for place in graph["places"]]
        for at, place in enumerate(graph["places"]):
            count = len(place.get("tokens", []))
            self.net.add_place(Place(f"p{at}", [dot] * count))
            if self.capacities[at] is not None:
                self.net.add_place(Place(f"free{at}", [dot] * (self.capacities[at] - count)))
        for at, node in enumerate(graph["nodes"]):
            self.add_node(at, node)

    def add_node(self, at, node):
        inputs = node.get("in", [])
        kinds = {"take": [], "read": [], "inhibit": []}
        for index, arc in enumerate(inputs):
            kinds[arc.get("kind", "take")].append(index)
        if not kinds["take"] and node.get("join", "all") == "all":
            self.net.add_place(Place(f"idle{at}", [dot]))
        reserved = self.most_put(node)
        for number, (chosen, refused) in enumerate(self.joins(node, kinds["take"])):
            under_way = f"under_way{at}_{number}"
            self.net.add_place(Place(under_way))
            self.firings[under_way] = (at, chosen)
            start = Transition(f"start{at}_{number}")
            self.net.add_transition(start)
            takes, puts = {}, {under_way: 1}
            for index in chosen:
                place, weight = inputs[index]["place"], inputs[index].get("weight", 1)
                takes[f"p{place}"] = takes.get(f"p{place}", 0) + weight
                if self.capacities[place] is not None:
                    takes[f"free{place}"] = takes.get(f"free{place}", 0) - weight
            for place, most in reserved.items():
                if self.capacities[place] is not None:
                    takes[f"free{place}"] = takes.get(f"free{place}", 0) + most
            if not chosen:
                takes[f"idle{at}"] = 1
            for place, count in takes.items():
                if count > 0:
                    self.net.add_input(place, start.name, tokens(count))
                elif count < 0:
                    puts[place] = -count
            for index in kinds["read"]:
                self.look(start, inputs[index], Test)
            for index in kinds["inhibit"] + refused:
                self.look(start, inputs[index], Inhibitor)
            for place, count in puts.items():
                self.net.add_output(place, start.name, tokens(count))
            self.add_ends(at, node, under_way, reserved, bool(chosen))

    def look(self, start, arc, annotation):
        self.net.add_input(f"p{arc['place']}", start.name, annotation(tokens(arc.get("weight", 1))))

    def joins(self, node, takes):
        """Returns each choice of inputs, with those that must not have tokens enough for it."""
        join = node.get("join", "all")
        if join == "all":
            return [(takes, [])]
        if join == "one":
            return [([index], takes[:at]) for at, index in enumerate(takes)]
        sizes = range(1, len(takes) + 1)
        choices = itertools.chain.from_iterable(itertools.combinations(takes, size) for size in sizes)
        return [(list(some), [each for each in takes if each not in some]) for some in choices]

    def outcomes(self, node):
        """Returns the outputs that get tokens, for each way in which a firing may end."""
        outputs = node.get("out", [])
        results = [at for at, output in enumerate(outputs) if "on" not in output]
        names = sorted({output["on"] for output in outputs if "on" in output}) if "call" in node else []
        for name in names:
            yield [at for at, output in enumerate(outputs) if output.get("on") in (name, "*")]
        split = node.get("split", "all")
        if split == "all":
            yield results
        elif split == "one":
            for at in results:
                yield [at]
                if "if" not in outputs[at]:
                    return
            yield []
        else:
            always = [at for at in results if "if" not in outputs[at]]
            some = [at for at in results if "if" in outputs[at]]
            for size in range(len(some) + 1):
                for chosen in itertools.combinations(some, size):
                    yield always + list(chosen)

    def put(self, node, chosen):
        """Returns how many tokens each place gets."""
        counts = {}
        for at in chosen:
            output = node["out"][at]
            counts[output["place"]] = counts.get(output["place"], 0) + output.get("weight", 1)
        return counts

    def most_put(self, node):
        most = {}
        for chosen in self.outcomes(node):
            for place, count in self.put(node, chosen).items():
                most[place] = max(most.get(place, 0), count)
        return most

    def add_ends(self, at, node, under_way, reserved, takes):
        for number, chosen in enumerate(self.outcomes(node)):
            end = f"end_{under_way}_{number}"
            self.net.add_transition(Transition(end))
            self.net.add_input(under_way, end, tokens(1))
            put = self.put(node, chosen)
            puts = {f"p{place}": count for place, count in put.items()}
            for place, most in reserved.items():
                if self.capacities[place] is not None and most > put.get(place, 0):
                    puts[f"free{place}"] = most - put.get(place, 0)
            if not takes:
                puts[f"idle{at}"] = 1
            for place, count in puts.items():
                self.net.add_output(place, end, tokens(count))

    def state(self, marking):
        """Returns a marking of SNAKES as the text that the tests compare."""
        counts = [len(marking(f"p{at}")) for at in range(len(self.graph["places"]))]
        firings = []
        for place, (node, inputs) in self.firings.items():
            firings += [(node, inputs)] * len(marking(place))
        told = [f"{node}:{','.join(map(str, inputs))}" for node, inputs in sorted(firings)]
        return ",".join(map(str, counts)) + "|" + ";".join(told)

    def states(self):
        found = StateGraph(self.net)
        # (The iteration finds the successors of each state.)
        for _ in itertools.islice(found, MAX_STATES):
            yield self.state(found.net.get_marking())


for line in sys.stdin:
    print(json.dumps(sorted(Translation(json.loads(line)).states())), flush=True)
