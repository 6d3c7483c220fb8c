"""Losses and targets: pure functions, one equation each.

Names carry time: `q_tm1` are the values of the observation in which `a_tm1` was taken; `r_t`,
`discount_t` and `q_t` belong to what followed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def q_learning_target(r_t: Tensor, discount_t: Tensor, q_t_value: Tensor, q_t_selector: Tensor) -> Tensor:
    """Return r_t + discount_t * q_t_value[argmax_a q_t_selector], shape (B,).

    Plain DQN (Mnih et al. 2015, eq. 1 of Methods) passes the target network's values twice; Double
    Q-learning (van Hasselt et al. 2015, eq. 4) passes the online network's values as `q_t_selector`.

    Args:
        r_t: (B,) float32 rewards. discount_t: (B,) float32, 0 where the episode terminated.
        q_t_value, q_t_selector: (B, A) float32.

    Raises:
        ValueError: if a shape is not as above (a silent broadcast would hide here).
    """
    batch_size = r_t.shape[0]
    if r_t.shape != (batch_size,) or discount_t.shape != (batch_size,):
        raise ValueError(f"r_t and discount_t must be (B,), not {tuple(r_t.shape)} and {tuple(discount_t.shape)}")
    if q_t_value.dim() != 2 or q_t_value.shape[0] != batch_size or q_t_selector.shape != q_t_value.shape:
        raise ValueError(
            f"q_t_value and q_t_selector must be (B, A), not {tuple(q_t_value.shape)} and {tuple(q_t_selector.shape)}"
        )
    best = q_t_selector.argmax(dim=1, keepdim=True)  # (B, 1)
    return r_t + discount_t * q_t_value.gather(1, best).squeeze(1)


def taken_values(q_tm1: Tensor, a_tm1: Tensor) -> Tensor:
    """Return q_tm1[b, a_tm1[b]] from (B, A) values, shape (B,), or (B, A, Z) logits, shape (B, Z), and (B,) actions.

    Raises:
        ValueError: a shape is not as above.
    """
    if q_tm1.dim() not in (2, 3) or a_tm1.shape != q_tm1.shape[:1]:
        raise ValueError(
            f"q_tm1 must be (B, A) or (B, A, Z) and a_tm1 (B,), not {tuple(q_tm1.shape)} and {tuple(a_tm1.shape)}"
        )
    if q_tm1.dim() == 2:
        return q_tm1.gather(1, a_tm1.unsqueeze(1)).squeeze(1)
    return q_tm1.gather(1, a_tm1.view(-1, 1, 1).expand(-1, 1, q_tm1.shape[2])).squeeze(1)


def squared_td_errors(qa_tm1: Tensor, target_tm1: Tensor) -> Tensor:
    """Return (target - Q(s, a))^2 of each transition, shape (B,); the target carries no gradient.

    The 2017 post's loss.

    Raises:
        ValueError: a shape is not as above.
    """
    _check_values(qa_tm1, target_tm1)
    return functional.mse_loss(qa_tm1, target_tm1.detach(), reduction="none")


def clipped_td_errors(qa_tm1: Tensor, target_tm1: Tensor) -> Tensor:
    """Return d^2 / 2 where |d| < 1 and |d| - 1/2 elsewhere, for d = target - Q(s, a) of each transition, shape (B,).

    The derivative is d clipped to [-1, 1] (Mnih et al. 2015, Methods; Huber's loss). The target carries no gradient.

    Raises:
        ValueError: a shape is not as above.
    """
    _check_values(qa_tm1, target_tm1)
    return functional.huber_loss(qa_tm1, target_tm1.detach(), reduction="none")


def _check_values(qa_tm1: Tensor, target_tm1: Tensor) -> None:
    if qa_tm1.shape != target_tm1.shape or qa_tm1.dim() != 1:
        raise ValueError(f"both must be (B,), not {tuple(qa_tm1.shape)} and {tuple(target_tm1.shape)}")


def weighted_mean(errors: Tensor, weight: Tensor | None) -> Tensor:
    """Return the mean over the batch of weight * errors, a scalar; `weight` (B,) are importance weights, None for ones.

    Schaul et al. 2016, section 3.4.

    Raises:
        ValueError: a shape is not as above.
    """
    if weight is None:
        return errors.mean()
    if errors.dim() != 1 or weight.shape != errors.shape:
        raise ValueError(f"both must be (B,), not {tuple(errors.shape)} and {tuple(weight.shape)}")
    return (weight * errors).mean()


def expected_values(logits: Tensor, atoms: Tensor) -> Tensor:
    """Return the means (B, A) of the distributions that `logits` (B, A, Z) give to `atoms` (Z,).

    Bellemare et al. 2017, section 4: Q(x, a) = sum_i z_i p_i(x, a).

    Raises:
        ValueError: a shape is not as above.
    """
    if logits.dim() != 3 or atoms.shape != logits.shape[2:]:
        raise ValueError(f"logits must be (B, A, Z) and atoms (Z,), not {tuple(logits.shape)} and {tuple(atoms.shape)}")
    return logits.softmax(dim=2) @ atoms


def categorical_projection(probabilities: Tensor, moved: Tensor, atoms: Tensor) -> Tensor:
    """Return distributions over `moved` atoms projected onto the fixed `atoms`, shape (B, Z).

    Bellemare et al. 2017, eq. 7: (Phi p)_i = sum_j clip(1 - |clip(moved_j) - z_i| / dz, 0, 1) p_j. Mass beyond either
    end goes to that end, and an atom that meets another gives it all of its mass.

    Args:
        probabilities: (B, Z) float32. moved: (B, Z), where their atoms have moved to. atoms: (Z,), evenly spaced.

    Raises:
        ValueError: a shape is not as above.
    """
    if probabilities.dim() != 2 or moved.shape != probabilities.shape or atoms.shape != probabilities.shape[1:]:
        shapes = [tuple(tensor.shape) for tensor in (probabilities, moved, atoms)]
        raise ValueError(f"probabilities and moved must be (B, Z) and atoms (Z,), not {shapes}")
    last = len(atoms) - 1
    spacing = (atoms[last] - atoms[0]) / last
    place = ((moved - atoms[0]) / spacing).clamp(0, last)  # (B, Z), b in the paper's algorithm 1
    index = torch.arange(last + 1, device=atoms.device, dtype=place.dtype)
    away = (place.unsqueeze(1) - index.unsqueeze(1)).abs_()  # (B, Z to, Z from)
    share = torch.sub(1.0, away).clamp_(min=0.0)
    return (share @ probabilities.unsqueeze(2)).squeeze(2)


def categorical_target(
    r_t: Tensor, discount_t: Tensor, logits_t_value: Tensor, q_t_selector: Tensor, atoms: Tensor
) -> Tensor:
    """Return the projected distribution of r_t + discount_t * Z(s_t, argmax_a q_t_selector), shape (B, Z).

    Bellemare et al. 2017, algorithm 1; with n-step returns and Double Q-learning as in Hessel et al. 2017, section 3.

    Args:
        r_t, discount_t: (B,) float32. logits_t_value: (B, A, Z). q_t_selector: (B, A). atoms: (Z,).

    Raises:
        ValueError: a shape is not as above.
    """
    if r_t.dim() != 1 or discount_t.shape != r_t.shape or q_t_selector.shape != logits_t_value.shape[:2]:
        shapes = [tuple(tensor.shape) for tensor in (r_t, discount_t, logits_t_value, q_t_selector)]
        raise ValueError(f"must be (B,), (B,), (B, A, Z) and (B, A), not {shapes}")
    probabilities = taken_values(logits_t_value, q_t_selector.argmax(dim=1)).softmax(dim=1)  # (B, Z)
    moved = r_t.unsqueeze(1) + discount_t.unsqueeze(1) * atoms
    return categorical_projection(probabilities, moved, atoms)


def rescaled(returns: Tensor) -> Tensor:
    """Return sign(x) * (sqrt(|x| + 1) - 1) of each x, so that large ones lie closer together; of any shape.

    Pohlen et al. 2018, "Observe and Look Further", section 3.2, without the term that is linear in x.
    """
    return returns / ((returns.abs() + 1.0).sqrt() + 1.0)  # the same without a difference of nearly equal numbers


def restored(rescaled: Tensor) -> Tensor:
    """Return the numbers whose rescaled ones these are: sign(y) * ((|y| + 1)^2 - 1); of any shape."""
    return rescaled * (rescaled.abs() + 2.0)


def histograms(values: Tensor, atoms: Tensor, deviation: float) -> Tensor:
    """Return a distribution over `atoms` for each value, shape (B, Z): of a normal distribution around it the mass that
    is nearer to an atom than to the others, without what is beyond them.

    "HL-Gauss": Imani & White 2018, "Improving Regression Performance with Distributional Losses"; Farebrother et al.
    2024, "Stop Regressing", section 3.1. A value beyond the outermost atoms counts as the nearer one of these.

    Args:
        values: (B,) float32. atoms: (Z,), evenly spaced.
        deviation: of the normal distribution, in atoms.

    Raises:
        ValueError: a shape is not as above.
    """
    if values.dim() != 1 or atoms.dim() != 1:
        raise ValueError(f"values must be (B,) and atoms (Z,), not {tuple(values.shape)} and {tuple(atoms.shape)}")
    last = len(atoms) - 1
    spacing = (atoms[last] - atoms[0]) / last
    place = ((values - atoms[0]) / spacing).clamp(0, last).unsqueeze(1)  # (B, 1), in atoms
    edges = torch.arange(last + 2, device=atoms.device, dtype=place.dtype) - 0.5
    special: Any = torch.special  # without types
    below: Tensor = special.ndtr((edges - place) / deviation)  # (B, Z + 1)
    mass = below[:, 1:] - below[:, :-1]
    return mass / mass.sum(dim=1, keepdim=True)


def kl_divergences(logits_tm1: Tensor, target_tm1: Tensor) -> tuple[Tensor, Tensor]:
    """Return cross-entropies and Kullback-Leibler divergences from target to prediction, shape (B,) each.

    The first is Bellemare et al. 2017's loss. The second, which carries no gradient (it would have the same one), is
    Hessel et al. 2017's measure of priority (section 3), which is 0 when the prediction is right.

    Args:
        logits_tm1: (B, Z) of the actions taken. target_tm1: (B, Z) probabilities, without gradient.

    Raises:
        ValueError: a shape is not as above.
    """
    if logits_tm1.dim() != 2 or target_tm1.shape != logits_tm1.shape:
        raise ValueError(f"both must be (B, Z), not {tuple(logits_tm1.shape)} and {tuple(target_tm1.shape)}")
    target = target_tm1.detach()
    cross_entropy = -(target * logits_tm1.log_softmax(dim=1)).sum(dim=1)
    entropy = -target.xlogy(target).sum(dim=1)
    return cross_entropy, cross_entropy.detach() - entropy
