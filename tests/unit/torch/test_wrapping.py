"""What cannot be wrapped is told by name: an optimizer twice, models of DDP, lazy parameters, state of other kinds."""

from __future__ import annotations

import gc
import warnings

import pytest

torch = pytest.importorskip("torch")

from eager import backward, eager, ranks, sgd, values, weights  # noqa: E402

import pycollectives as pc  # noqa: E402
from pycollectives.torch import DecentralizedOptimizer, EagerOptimizer  # noqa: E402


def test_one_optimizer_is_wrapped_once():
    def program(comm):
        parameters = weights(2)
        inner = sgd(parameters)
        with eager(inner, comm, name="first") as first:
            text = "expected an unwrapped optimizer, got SGD wrapped by 'first': use that wrapper, or close.. it first"
            with pytest.raises(ValueError, match=text):
                eager(inner, comm)
            backward(parameters, 1.0)
            first.step()
        with eager(inner, comm) as second:  # the first one is closed
            second.zero_grad()
            backward(parameters, 1.0)
            second.step()
        return values(parameters)

    assert ranks(2, program) == [[{-2.0}]] * 2


@pytest.mark.parametrize("keeps", ["it", "the parameters"])
def test_what_is_not_closed_counts_as_long_as_its_hooks_do(keeps):
    def program(comm):
        parameters = weights(2)
        inner = sgd(parameters)
        first = eager(inner, comm, name="first")
        kept = [first if keeps == "it" else None]
        del first
        gc.collect()
        with pytest.raises(ValueError, match="by 'first'"):
            eager(inner, comm)
        return len(kept)

    assert ranks(1, program) == [1]


@pytest.mark.parametrize("comes", ["at first", "later"])
def test_a_parameter_is_in_one_of_them(comes):
    def program(comm):
        apart, shared = weights(2, 3)
        inner = sgd([shared] if comes == "at first" else [apart])
        text = "its parameter 0 of group . is also in 'first', which is open: wrap one optimizer"
        with eager(sgd([shared]), comm, name="first"):
            if comes == "at first":
                with pytest.raises(ValueError, match=text):
                    eager(inner, comm)
            else:
                with eager(inner, comm) as second:
                    with pytest.raises(ValueError, match=text):
                        second.add_param_group({"params": [shared]})
                    assert len(second.param_groups) == 1

    ranks(2, program)


def test_frozen_parameters_may_be_shared():
    def program(comm):
        frozen, first, second = weights(1, 2, 3)
        frozen.requires_grad_(False)
        with eager(sgd([frozen, first]), comm), eager(sgd([frozen, second]), comm):
            return True

    assert ranks(2, program) == [True] * 2


@pytest.fixture
def process_group():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("given", ["parameters", "parameters of the plain model", "model"])
def test_a_model_of_ddp_is_refused(given):
    def program(comm):
        plain = torch.nn.Linear(2, 1)
        model = torch.nn.parallel.DistributedDataParallel(plain)
        with eager(sgd(torch.nn.Linear(2, 1).parameters()), comm):  # another model's
            pass
        text = "model: expected a plain module" if given == "model" else "its parameters belong"
        options = {"model": torch.nn.ModuleList([model])} if given == "model" else {}
        parameters = (plain if "plain" in given else model).parameters()
        with pytest.raises(ValueError, match=f"{text}.* a DistributedDataParallel, which averages"):
            eager(sgd(parameters), comm, **options)

    ranks(1, program)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("overlap", [True, False])
def test_a_model_that_is_given_to_ddp_later_is_told_in_the_first_step(overlap):
    """As libraries do that prepare a model for training."""

    def program(comm):
        model = torch.nn.Linear(2, 1)
        optimizer = eager(sgd(model.parameters()), comm, overlap=overlap)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        wrapped(torch.ones(1, 2)).sum().backward()
        with pytest.raises(ValueError, match="its parameters belong to a DistributedDataParallel"):
            optimizer.step()
        optimizer.abort()

    ranks(1, program)


@pytest.mark.parametrize("given", ["parameters", "model"])
def test_lazy_parameters_are_told(given):
    def program(comm):
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LazyLinear(1))
        trained = model if given == "parameters" else model[0]
        name = "parameter 2 of group 0" if given == "parameters" else "model: parameter '1.weight'"
        text = (
            f"{name}: expected a tensor with a shape, got UninitializedParameter of a lazy module: run the model once"
        )
        with pytest.raises(TypeError, match=text):
            eager(sgd(trained.parameters()), comm, model=None if trained is model else model)
        model(torch.zeros(1, 2))
        with eager(sgd(trained.parameters()), comm, model=model):
            return True

    assert ranks(1, program) == [True]


def unpicklable(inner):
    inner.param_groups[0]["schedule"] = lambda step: step


def on_meta(inner):
    inner.state[inner.param_groups[0]["params"][0]] = {"exp_avg": torch.zeros(2, device="meta")}


def of_a_kind_of_its_own(inner):
    class Quantized(torch.Tensor):
        pass

    inner.state[inner.param_groups[0]["params"][0]] = {"exp_avg": torch.zeros(2).as_subclass(Quantized)}


def test_schedulers_that_are_refused():
    def program(comm):
        inner, other = sgd(weights(2)), sgd(weights(2))
        constant = torch.optim.lr_scheduler.ConstantLR
        for schedulers, got in (
            ([constant(other)], "ConstantLR of another optimizer"),
            ([constant(inner), 0.5], "0.5"),
        ):
            text = f"schedulers: expected learning-rate schedulers of the wrapped optimizer, got {got}"
            with pytest.raises(ValueError, match=text):
                eager(inner, comm, schedulers=schedulers)
        with pytest.raises(pc.MismatchError, match="schedulers: ConstantLR on rank 0, StepLR on rank 1"):
            eager(inner, comm, schedulers=[torch.optim.lr_scheduler.StepLR(inner, 1) if comm.rank else constant(inner)])

    ranks(2, program)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (unpicklable, "lambda"),
        (on_meta, "expected dense tensors in memory of the host or of a CUDA device, got Tensor .2,. float32 on meta"),
        (of_a_kind_of_its_own, "got Quantized .2,. float32 on cpu"),
    ],
)
def test_state_that_cannot_be_sent_is_told_to_all_and_may_stay(spoil, text):
    def program(comm):
        parameters = weights(2)
        inner = sgd(parameters)
        if comm.rank == 0:
            spoil(inner)
        error = TypeError if comm.rank == 0 else pc.MismatchError
        with pytest.raises(error, match=f"cannot be sent to the other ranks .*{text}.*: pass broadcast_state=False"):
            eager(inner, comm)
        with eager(inner, comm, broadcast_state=False) as optimizer:
            backward(parameters, 1.0)
            optimizer.step()
        return values(parameters)

    assert ranks(2, program) == [[{-1.0}]] * 2


@pytest.mark.parametrize(
    ("of_rank_1", "text"),
    [
        (lambda p: torch.optim.Adam(p), "optimizer: SGD on rank 0, Adam on rank 1"),
        (lambda p: sgd([{"params": [one]} for one in p]), "groups: 2 on rank 0, 1 . 1 on rank 1"),
    ],
)
def test_ranks_with_different_optimizers_are_told(of_rank_1, text):
    def program(comm):
        with pytest.raises(pc.MismatchError, match=text):
            eager((sgd if comm.rank == 0 else of_rank_1)(weights(2, 3)), comm)

    ranks(2, program)


def test_models_that_differ_are_told():
    def program(comm):
        text = r"model: 5: \(2,\) float32.* on rank 0, None on rank 1"
        with pytest.raises(pc.MismatchError, match=text):
            eager(
                sgd(weights(2)), comm, model=None if comm.rank == 1 else torch.nn.ModuleList([torch.nn.BatchNorm1d(2)])
            )

    ranks(2, program)


def test_what_is_no_model_is_refused():
    def program(comm):
        with pytest.raises(TypeError, match=r"model: expected a torch.nn.Module, got list"):
            eager(sgd(weights(2)), comm, model=weights(2))
        text = "average_buffers: expected a model, got None: pass model to this call"
        with eager(sgd(weights(2)), comm) as optimizer, pytest.raises(ValueError, match=text):
            optimizer.average_buffers()

    ranks(1, program)


def test_one_whose_name_was_used_again_can_be_found_and_closed():
    from pycollectives.torch import open_optimizers

    def program(comm):
        inner = sgd(weights(2))
        optimizer = eager(inner, comm, name="first")
        del optimizer  # as when a cell of a notebook is run again
        with pytest.raises(ValueError, match=r"open_optimizers\(\) lists the open optimizers"):
            eager(inner, comm, name="second")
        (found,) = (one for one in open_optimizers() if one.optimizer is inner)
        found.close()
        with eager(inner, comm, name="second") as second:
            return second in open_optimizers(), found in open_optimizers()

    assert ranks(1, program) == [(True, False)]


def test_hooks_are_called_with_the_wrapper():
    def program(comm):
        parameters = weights(2)
        seen = []
        with eager(sgd(parameters), comm) as optimizer:
            for kind in ("step_pre", "step_post", "state_dict_pre", "load_state_dict_pre", "load_state_dict_post"):
                register = getattr(optimizer, f"register_{kind}_hook")
                register(lambda given, *_, kind=kind: seen.append((kind, given is optimizer)))
            optimizer.register_state_dict_post_hook(lambda given, state: seen.append(("post", given is optimizer)))
            backward(parameters, 1.0)
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
        return seen

    kinds = ("step_pre", "step_post", "state_dict_pre", "post", "load_state_dict_pre", "load_state_dict_post")
    assert ranks(1, program) == [[(kind, True) for kind in kinds]]


def test_it_counts_as_an_instance_of_what_it_wraps():
    def program(comm):
        with eager(sgd(weights(2)), comm) as optimizer:
            assert isinstance(optimizer, torch.optim.SGD)
            assert isinstance(optimizer, EagerOptimizer)
            assert not isinstance(optimizer, (torch.optim.Adam, DecentralizedOptimizer))
            assert type(optimizer) is EagerOptimizer

    ranks(1, program)


def test_loading_state_drops_averages_that_no_step_used_and_waits_for_none():
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm) as optimizer:
            state = optimizer.state_dict()
            backward(parameters, comm.rank + 1.0)
            with pytest.raises(RuntimeError, match=r"load_state_dict: gradients of .* are in flight: call step"):
                optimizer.load_state_dict(state)
            optimizer.average_gradients()
            optimizer.load_state_dict(state)
            assert parameters[0].grad is None
            backward(parameters, 1.0)
            optimizer.step()
        return values(parameters)

    assert ranks(2, program) == [[{-1.0}]] * 2


@pytest.mark.parametrize("named_by", ["the optimizer", "the model"])
def test_messages_name_parameters(named_by):
    def program(comm):
        model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Linear(1, 1))
        model[1].bias.requires_grad_(False)
        if named_by == "the optimizer":
            optimizer = eager(sgd(model.named_parameters()), comm)
        else:
            optimizer = eager(sgd(model.parameters()), comm, model=model)
        with optimizer:
            model[1].bias.requires_grad_(True)
            with pytest.raises(RuntimeError, match=r"parameter '1\.bias' requires gradients, but is in no bucket"):
                optimizer.step()
            model[1].bias.requires_grad_(False)

    ranks(1, program)


def test_a_profile_shows_where_a_step_contributes_and_waits():
    def program(comm):
        parameters = weights(2)
        with eager(sgd(parameters), comm, overlap=False) as optimizer:
            backward(parameters, 1.0)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                optimizer.step()
        return {event.key for event in profile.key_averages() if event.key.startswith("pycollectives")}

    ranges = {"pycollectives: contribute gradients", "pycollectives: wait for averages"}
    assert ranks(1, program) == [ranges]


# ---------------------------------------------------------------------------------------------- what lets ranks differ


def warnings_of(size, make):
    """Make an optimizer on some ranks; the texts of warnings, in one list, since ranks are threads."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        def program(comm):
            with make(comm):
                pass

        ranks(size, program)
    return [str(one.message) for one in caught if issubclass(one.category, RuntimeWarning)]


def test_running_statistics_that_are_not_averaged_are_named():
    def model():
        return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.LayerNorm(3))

    def make(comm, size=2, **options):
        made = model()
        given = {"model": made} if options.pop("with_model", False) else {}
        return eager(sgd(list(made.parameters())), comm, name="it", **given, **options)

    (text,) = warnings_of(2, make)
    assert text.startswith("it: running statistics of 1 are not averaged")
    assert "Pass model=model" in text
    assert warnings_of(2, lambda comm: make(comm, with_model=True)) == []
    assert warnings_of(1, make) == []


def test_an_adaptive_optimizer_whose_replicas_drift_apart_is_told():
    def make(comm, **options):
        return eager(torch.optim.Adam(weights(2)), comm, name="it", **({"policy": "quorum:1"} | options))

    (text,) = warnings_of(2, make)
    assert text.startswith("it: with Adam, parameters differ between ranks")
    assert warnings_of(2, lambda comm: make(comm, sync_every=5)) == []
    assert warnings_of(2, lambda comm: make(comm, policy="full")) == []
    assert warnings_of(2, lambda comm: eager(sgd(weights(2)), comm, policy="quorum:1")) == []
